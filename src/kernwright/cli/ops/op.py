"""kernwright op: add a new op to a checkout of Kernwright."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernwright.cli.output import say

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
    from kernwright.scaffold.checkout import INDEX, Checkout
    from kernwright.scaffold.family import Family

    own = Family.named(name, family)
    for place in Checkout.at(root).add(own):
        say(f"wrote   {root / place}")
    say(f"changed {root / INDEX}")
    say("Next, in the root of the checkout:")
    for step in (
        "1. python -m kernwright.ops.stubs  (write the op's signature into ops/__init__.pyi)",
        f"2. python -m pytest {own.test}  (all pass as they are; on a GPU both kernels run there too)",
        f"3. write your op into {own.folder / 'definition.py'} and its cases into {own.test}",
        "4. then the Triton and the CUDA kernel, until the tests pass again: CONTRIBUTING.md, Add an implementation",
    ):
        say(f"  {step}")
