"""kernwright campaign artifacts: one folder with everything that a pull request needs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernwright.cli.output import say


def artifacts(
    words: Annotated[
        list[str],
        typer.Argument(metavar="[NAME] DIR", help="name of the campaign; default: the only one. Then the new folder"),
    ],
    image: Annotated[
        tuple[Path, Path] | None,
        typer.Option(metavar="BEFORE AFTER", help="pictures that the model made without and with the candidate"),
    ] = None,
) -> None:
    """Write the tables, the counters and the commands of a campaign's best version into one folder.

    All numbers come from records. A section without evidence says so.
    """
    from kernwright.campaign.lookup import find_campaign
    from kernwright.core.errors import KernwrightError
    from kernwright.report.artifacts.artifact_folder import ArtifactFolder

    if len(words) > 2:
        raise KernwrightError(f"{len(words)} words were given: {' '.join(words)}", "write: [NAME] DIR")
    *names, folder = words
    campaign = find_campaign(names[0] if names else None)
    for path in ArtifactFolder(campaign, image or ()).write(Path(folder)):
        say(path)
