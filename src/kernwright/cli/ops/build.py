"""kernwright build: native kernels built ahead of time, for machines without a compiler."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def build(
    arch: Annotated[
        list[str], typer.Option(help="sm_75, sm_80, sm_90, sm_100, ..., or cpu for this very processor; repeatable")
    ],
    out: Annotated[Path, typer.Option(help="the folder that the libraries go to")] = Path("kernwright-builds"),
    only: Annotated[str, typer.Option(help="a glob over the libraries' names, as 'norm_scale_shift_*'")] = "*",
    machine: Annotated[
        str | None, typer.Option(help="x86_64 or aarch64, where they are for another kind of machine than this")
    ] = None,
) -> None:
    """Builds the kernels of all ops into a folder. Where KERNWRIGHT_BUILDS names it, nothing needs to be built on
    machines of this kind, with the same release of Kernwright and of apache-tvm-ffi. For another kind of machine there
    must be a compiler here: Debian's g++-x86-64-linux-gnu or g++-aarch64-linux-gnu."""
    from kernwright.cli.console import err
    from kernwright.cli.console import out as console
    from kernwright.core.errors import KernwrightError
    from kernwright.core.runtime_interface import BUILDS_VARIABLE
    from kernwright.ops.builds import build_ahead
    from kernwright.runtime.target import Target

    targets = [Target.named(name, machine) for name in arch]

    def told(path: Path) -> None:
        console.print(path.name, highlight=False)

    def nothing_for(target: Target) -> None:
        err.print(f"--only {only}: fits no library for {target.name}", highlight=False, markup=False, soft_wrap=True)

    done = build_ahead(targets, out.absolute(), only, told, nothing_for)
    if not done:
        raise KernwrightError(f"--only {only}: fits no library", "leave it away to build all")
    console.print(
        f"{len(done)} built; use them with {BUILDS_VARIABLE}={out.absolute()}", highlight=False, soft_wrap=True
    )
