"""The places that an agent must not change."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from kernwright.baselines.lock import read_lock
from kernwright.campaign.agents.guard.commits import committed, git_output
from kernwright.campaign.agents.guard.protected import ProtectedPlace
from kernwright.campaign.campaign import Campaign
from kernwright.core.errors import EnvironmentProblem, KernwrightError
from kernwright.packages.store import Store
from kernwright.packages.tree import Machine
from kernwright.tasks.catalog import find_task

PACKAGE = Path(__file__).resolve().parents[3]
COMPILED = "__pycache__"
# Parts of .git that configure git, and the references. Objects need no check: their names are their digests.
GIT_PARTS = ("config", "config.worktree", "HEAD", "hooks", "info", "packed-refs", "commondir", "gitdir", "modules")
START_UP = (".pth", "sitecustomize.py", "usercustomize.py")


def protected_places(campaign: Campaign, with_walls: bool) -> list[ProtectedPlace]:
    """Return the places of a campaign. With walls, references of other branches belong to other programs."""
    ledger, link = campaign.settings.ledger, campaign.worktree / ".git"
    return [
        # First, because the content of other files comes from the repository.
        ProtectedPlace("the repository", link),
        *_git_places(campaign, with_walls),
        ProtectedPlace("the task", find_task(campaign.settings.task).folder, skip=_is_compiled),
        ProtectedPlace("Kernwright's own files (judge, gate, tolerances)", PACKAGE, skip=_is_compiled),
        ProtectedPlace(
            "the campaign's settings", campaign.folder, skip=lambda path: path in (campaign.worktree, ledger)
        ),
        ProtectedPlace(
            "the worktree",
            campaign.worktree,
            keep=False,
            skip=lambda path: path in (link, campaign.agent_folder, ledger) or _is_compiled(path),
            fetch=lambda path: committed(campaign.worktree, path),
        ),
        *_start_up_files(),
        *_baseline_trees(campaign.settings.baseline),
        *_settings_of_agents(campaign.settings.repository),
    ]


def _is_compiled(path: Path) -> bool:
    return path.name == COMPILED


def compiled_folders(campaign: Campaign) -> list[Path]:
    """Return where compiled Python is stored. Python would run it in place of the sources beside it."""
    return [PACKAGE, find_task(campaign.settings.task).folder, campaign.worktree]


def _start_up_files() -> Iterator[ProtectedPlace]:
    """Yield the files that every Python program runs when it starts."""
    for folder in dict.fromkeys(Path(part) for part in sys.path if part and Path(part).is_dir()):
        yield ProtectedPlace("Python's start-up files", folder, skip=lambda path: not path.name.endswith(START_UP))


def _baseline_trees(name: str) -> Iterator[ProtectedPlace]:
    lock = read_lock()
    if name not in lock.names():
        return
    own = lock.find(name)
    for tree_name in (own.tree, *own.needs):
        if (tree := lock.tree_for(tree_name, Machine.this())) is not None:
            # The judge hashes it before each use and unpacks a changed one again.
            yield ProtectedPlace(f"the baseline {name}", Store().place(tree), keep=False, skip=_is_compiled)


def _settings_of_agents(repository: Path) -> Iterator[ProtectedPlace]:
    configuration = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    for path in (repository / ".kernwright" / "agents.toml", configuration / "kernwright" / "agents.toml"):
        yield ProtectedPlace("the settings of agents", path)
    for path in (Path.home() / ".gitconfig", configuration / "git"):
        yield ProtectedPlace("the settings of git", path)


def _git_places(campaign: Campaign, with_walls: bool) -> Iterator[ProtectedPlace]:
    own, common = (_git_folder(campaign.worktree, option) for option in ("--git-dir", "--git-common-dir"))
    for folder in dict.fromkeys((own, common)):
        for part in GIT_PARTS:
            yield ProtectedPlace("the repository", folder / part)
    branch = common / "refs" / "heads" / campaign.branch
    yield ProtectedPlace("the repository", branch if with_walls else common / "refs")


def _git_folder(worktree: Path, option: str) -> Path:
    found = git_output(worktree, "rev-parse", "--path-format=absolute", option)
    if found is None:
        raise EnvironmentProblem(f"{worktree} is not a worktree of git", "start the campaign again")
    return Path(os.fsdecode(found).rstrip("\n"))


def check_exists(campaign: Campaign) -> None:
    """Raise KernwrightError if the campaign has no folder for an agent."""
    if not campaign.agent_folder.is_dir():
        raise KernwrightError(
            f"{campaign.agent_folder} does not exist", "the campaign's worktree was removed: start a new campaign"
        )
