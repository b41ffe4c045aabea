"""Find a campaign by name, from any folder of its repository or of its worktree."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path

from pydantic import ValidationError

from kernwright.campaign.campaign import Campaign, campaigns_folder
from kernwright.campaign.repository import Repository
from kernwright.campaign.settings import CampaignSettings
from kernwright.core.errors import BadFile, KernwrightError, did_you_mean

SETTINGS_FILE = "settings.json"


def find_campaign(name: str | None = None, start: Path | None = None) -> Campaign:
    """Return a campaign of the repository around a folder; without a name, the one that it holds or lies in.

    Args:
        start: a folder; by default the working directory.
    """
    here = (start or Path.cwd()).resolve()
    for repository in chain((here, *here.parents), _main_tree(here)):
        known = sorted(path.parent.name for path in campaigns_folder(repository).glob(f"*/{SETTINGS_FILE}"))
        if known:
            inside = [each for each in known if here.is_relative_to(campaigns_folder(repository) / each)]
            return _load(repository, _chosen(name, inside or known))
    raise KernwrightError(f"there is no campaign in {here} or above", "start one: kernwright campaign start TASK")


def _main_tree(folder: Path) -> Iterator[Path]:
    """Yield the main working tree of the repository around a folder, which has the campaigns of all worktrees."""
    with suppress(KernwrightError):
        yield Repository.around(folder).main.root


def _chosen(name: str | None, known: list[str]) -> str:
    if name is None and len(known) == 1:
        return known[0]
    listed = f"the campaigns are: {', '.join(known)}"
    if name is None:
        raise KernwrightError(f"there are {len(known)} campaigns here", f"name one; {listed}")
    if name not in known:
        raise KernwrightError(f"there is no campaign {name!r}", did_you_mean(name, known, listed))
    return name


def _load(repository: Path, name: str) -> Campaign:
    path = campaigns_folder(repository) / name / SETTINGS_FILE
    try:
        campaign = Campaign(CampaignSettings.model_validate_json(path.read_bytes()))
    except (OSError, ValidationError) as error:
        said = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error.strerror
        raise BadFile(path, "", f"cannot be read: {said}", "restore it from the record campaign_started") from None
    if campaign.settings.repository.resolve() != repository.resolve():
        raise KernwrightError(
            f"campaign {name} was started in {campaign.settings.repository}, and this is {repository}",
            "move the repository back: the worktree and the records of a campaign refer to its path",
        )
    return campaign
