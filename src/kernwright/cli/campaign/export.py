"""kernwright campaign export: the best version of a campaign as a patch against another project."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernwright.cli.campaign.arguments import CampaignName
from kernwright.cli.output import refuse_unwritable, say, write_whole


def export(
    name: CampaignName = None,
    to: Annotated[
        tuple[str, Path] | None,
        typer.Option(
            metavar="sglang DIR", help="the project, and its tree: a checkout, or an unpacked wheel of 0.5.23"
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="report whether the exported copy and the best version differ")
    ] = False,
    apply: Annotated[bool, typer.Option("--apply", help="write the files into the tree, besides the patch")] = False,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="file of the patch; default: in the folder of the campaign")
    ] = None,
    public_name: Annotated[
        str | None, typer.Option("--name", help="name of the kernel in the project; default: the name of the op")
    ] = None,
    domain: Annotated[
        str | None, typer.Option(help="subfolder of sglang's diffusion kernels; default: by the family of the op")
    ] = None,
) -> None:
    """Write a patch with source, registration, test and benchmark of the best version.

    Candidates in Triton, CUDA and C++ can be exported. The launcher refuses calls that are not like the judged ones.

    Exit status 0: written, or with --check no drift; 1: the copies differ.
    """
    from kernwright.campaign.export.sglang_export import SglangExport
    from kernwright.campaign.lookup import find_campaign
    from kernwright.core.errors import KernwrightError

    if to is None or to[0] != "sglang":
        given = "no project" if to is None else f"--to {to[0]}"
        raise KernwrightError(f"{given}: the only project is sglang", "write --to sglang DIR")
    campaign = find_campaign(name)
    own = SglangExport(campaign=campaign, root=to[1], name=public_name, domain=domain)
    if check:
        found = own.drift()
        for line in found:
            say(f"drift: {line}")
        if found:
            say(f"  next    kernwright campaign export {campaign.name} --to sglang {to[1]} --apply")
            raise typer.Exit(1)
        say(f"{own.files.name}: the exported copy is the best version")
        return
    path = output or campaign.folder / "sglang.patch"
    refuse_unwritable(path)
    changes = own.changes()
    write_whole(path, own.patch(), "choose another file with --output")
    for place in sorted(changes):
        say(f"  {'changed' if changes[place][0] is not None else 'new    '} {place}")
    say(f"patch of {len(changes)} files for diffusion.{own.files.name}: {path}")
    if apply:
        own.apply()
        say(f"applied to {to[1]}")
    else:
        say(f"  apply   git -C {to[1]} apply {path.resolve()}")
