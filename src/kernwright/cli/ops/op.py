"""kernwright op: add a new op to a checkout of Kernwright."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help="Add a new op to a checkout of Kernwright.")


@app.callback()
def op() -> None:
    """Keep `new` a subcommand although it is the only one."""


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="name of the op: lower-case letters, digits, _")],
    family: Annotated[str, typer.Option(help="name of the new family that the op belongs to")],
    root: Annotated[Path, typer.Option(help="root of the checkout")] = Path(),
) -> None:
    """Write a working family with one op: a definition, a Triton kernel, a CUDA kernel and tests."""
    from kernwright.cli.console import out
    from kernwright.scaffold.checkout import INDEX, Checkout
    from kernwright.scaffold.family import Family

    own = Family.named(name, family)
    for place in Checkout.at(root).add(own):
        out.print(f"wrote   {root / place}", highlight=False, markup=False, soft_wrap=True)
    out.print(f"changed {root / INDEX}", highlight=False, markup=False, soft_wrap=True)
    out.print("Next, in the root of the checkout:", highlight=False)
    for step in (
        "1. python -m kernwright.ops.stubs  (write the op's signature into ops/__init__.pyi)",
        f"2. python -m pytest {own.test}  (all pass as they are; on a GPU both kernels run there too)",
        f"3. write your op into {own.folder / 'definition.py'} and its cases into {own.test}",
        "4. then the Triton and the CUDA kernel, until the tests pass again: CONTRIBUTING.md, Add an implementation",
    ):
        out.print(f"  {step}", highlight=False, markup=False, soft_wrap=True)
