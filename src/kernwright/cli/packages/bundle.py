"""kernwright bundle: make a folder with everything that a machine without a network needs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernwright.cli.output import say
from kernwright.cli.packages.baseline import trees_for

if TYPE_CHECKING:
    from rich.table import Table

    from kernwright.bundle.manifest import Manifest

MIB = 1 << 20
CORE_LIMIT_MIB = 20


def bundle(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="folder to make")],
    python: Annotated[str | None, typer.Option(help="Python version, such as 3.12; default: this one's")] = None,
    platform: Annotated[
        list[str] | None,
        typer.Option(help="wheel platform of that machine; repeatable; default: manylinux_2_28_x86_64"),
    ] = None,
    more: Annotated[
        list[str] | None, typer.Option("--with", metavar="NAME==VERSION", help="additional package; repeatable")
    ] = None,
    with_tests: Annotated[bool, typer.Option("--with-tests", help="include pytest and hypothesis")] = False,
    with_campaign: Annotated[
        bool, typer.Option("--with-campaign", help="include what the tuner of campaigns searches with")
    ] = False,
    with_baselines: Annotated[
        bool, typer.Option("--with-baselines", help="include the published baselines of the lock file")
    ] = False,
    with_cutedsl: Annotated[
        bool, typer.Option("--with-cutedsl", help="include CuTe-DSL, which some kernels of the baselines need")
    ] = False,
    package: Annotated[bool, typer.Option(help="include Kernwright and its tasks")] = True,
    part_size: Annotated[
        str | None,
        typer.Option(help="maximum size of a part, such as 48M: split into part-1, part-2, ..."),
    ] = None,
    index: Annotated[str | None, typer.Option(help="package index; default: pip's")] = None,
    find_links: Annotated[Path | None, typer.Option(help="folder to take all wheels from")] = None,
    check: Annotated[bool, typer.Option("--check", help="only check that a bundle is complete and unchanged")] = False,
) -> None:
    """Make a folder for PYTHONPATH with everything that a machine without a network needs.

    That machine must have torch, triton and numpy already.
    """
    from kernwright.baselines.lock import read_lock
    from kernwright.bundle.bundle import BundleRequest, make_bundle
    from kernwright.bundle.manifest import check_bundle
    from kernwright.bundle.parts import parse_size
    from kernwright.bundle.requirements import choose_pins
    from kernwright.core.errors import KernwrightError
    from kernwright.packages.download import WheelSource
    from kernwright.packages.tree import Machine
    from kernwright.packages.wheel_target import make_target

    if check:
        _show(check_bundle(folder), folder)
        return
    if find_links is not None and not find_links.is_dir():
        raise KernwrightError(f"--find-links {find_links} is not a folder", "name a folder that holds wheels")
    core, tests, extra = choose_pins(with_tests, more or [], with_campaign)
    target = make_target(python, platform or [])
    trees = trees_for(read_lock(), None, Machine.of(target), with_cutedsl) if with_baselines or with_cutedsl else []
    request = BundleRequest(
        folder=folder, target=target, core=core, tests=tests, more=extra, baselines=tuple(trees), package=package,
        part_bytes=parse_size(part_size) if part_size else None,
        source=WheelSource(index, find_links.absolute() if find_links else None),
    )  # fmt: skip
    manifest = make_bundle(request, lambda said: say(said, err=True))
    _show(manifest, folder)
    _warn_if_large(manifest)


def _show(manifest: Manifest, folder: Path) -> None:
    from kernwright.bundle.requirements import EXPECTED
    from kernwright.cli.console import out

    out.print(_table(manifest))
    path = ":".join(str(place) for place in manifest.search_path(folder))
    brought = {package.name for package in manifest.packages}
    missing = ", ".join(name for name in EXPECTED if name not in brought)
    say(f"PYTHONPATH={path}")
    say(f"That machine must have Python {manifest.target.python} with {missing}.")


def _table(manifest: Manifest) -> Table:
    from rich.table import Table

    where = {
        package.name: ", ".join(part.folder for part in manifest.parts if package.name in part.packages)
        for package in manifest.packages
    }
    table = Table(title=f"bundle for {manifest.target}", caption=f"made {manifest.date}", show_footer=True)
    table.add_column("package", footer="total")
    table.add_column("version")
    table.add_column("group", footer=f"core {manifest.core_bytes / MIB:.1f} MiB")
    table.add_column("part")
    table.add_column("MiB", justify="right", footer=f"{manifest.total_bytes / MIB:.1f}")
    table.add_column("sha256")
    for package in sorted(manifest.packages, key=lambda package: -package.bytes):
        size = f"{package.bytes / MIB:.2f}"
        table.add_row(package.name, package.version, package.group, where[package.name], size, package.sha256[:16])
    return table


def _warn_if_large(manifest: Manifest) -> None:
    if manifest.core_bytes > CORE_LIMIT_MIB * MIB:
        largest = sorted((package for package in manifest.packages if package.group == "core"), key=lambda p: -p.bytes)
        names = ", ".join(f"{package.name} {package.bytes / MIB:.1f}" for package in largest[:3])
        say(
            f"warning: the core is {manifest.core_bytes / MIB:.1f} MiB; it is meant to stay under {CORE_LIMIT_MIB} "
            f"(largest: {names})",
            err=True,
        )
