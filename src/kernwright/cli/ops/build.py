"""kernwright build: build native kernels ahead of time, for machines without a compiler."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernwright.cli.output import say


def build(
    arch: Annotated[
        list[str],
        typer.Option(help="sm_75, sm_80, sm_90, sm_100, ..., or cpu for this processor; repeatable"),
    ],
    out: Annotated[Path, typer.Option(help="folder for the libraries")] = Path("kernwright-builds"),
    only: Annotated[str, typer.Option(help="glob over the names of libraries, such as 'norm_scale_shift_*'")] = "*",
    machine: Annotated[
        str | None, typer.Option(help="x86_64 or aarch64, to build for another architecture than this machine's")
    ] = None,
) -> None:
    """Build the native kernels of all ops into a folder.

    Set KERNWRIGHT_BUILDS to the folder on machines of the same architecture, with the same releases of Kernwright and
    apache-tvm-ffi: they then build nothing. Building for another architecture needs a cross compiler, such as Debian's
    g++-x86-64-linux-gnu or g++-aarch64-linux-gnu.
    """
    from kernwright.core.errors import KernwrightError
    from kernwright.core.runtime_interface import BUILDS_VARIABLE
    from kernwright.ops.builds import build_ahead
    from kernwright.runtime.target import Target

    targets = [Target.named(name, machine) for name in arch]

    def told(path: Path) -> None:
        say(path.name)

    def nothing_for(target: Target) -> None:
        say(f"--only {only}: matches no library for {target.name}", err=True)

    done = build_ahead(targets, out.absolute(), only, told, nothing_for)
    if not done:
        raise KernwrightError(f"--only {only}: matches no library", "omit it to build all libraries")
    say(f"{len(done)} built; use them with {BUILDS_VARIABLE}={out.absolute()}")
