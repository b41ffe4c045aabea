"""Start: make a campaign's worktree, branch and first commit, completely or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from kernwright.campaign.campaign import BRANCHES, Campaign
from kernwright.campaign.files.agent_folder import write_generated_files
from kernwright.campaign.files.starting_candidate import given_candidate, starting_candidate
from kernwright.campaign.history import History, HistoryEntry
from kernwright.campaign.lookup import SETTINGS_FILE
from kernwright.campaign.record import CampaignStarted
from kernwright.campaign.repository import GitFailed, Repository
from kernwright.campaign.settings import CampaignSettings
from kernwright.campaign.start.hygiene import check_hygiene
from kernwright.campaign.start.plan import CampaignPlan, taken
from kernwright.campaign.state.book import campaign_lock
from kernwright.campaign.state.versions import SOLUTION, Versions
from kernwright.core.errors import KernwrightError
from kernwright.ledger.files import replacing
from kernwright.tasks.catalog import find_task

EXCLUDED = "/.kernwright/"
GIVEN = "given_start"  # an empty file in the folder of a campaign whose starting version the user gave


def start_campaign(
    folder: Path,
    plan: CampaignPlan,
    base: str | None = None,
    check: Callable[[CampaignSettings], object] = lambda settings: None,
) -> Campaign:
    """Make a campaign in the repository around a folder. Nothing is measured yet.

    The campaign exists when its settings are written, which is the last step. The remains of an interrupted start are
    removed by the next start of the same name.

    Args:
        base: the commit to start from; by default the current one.
        check: is called with the settings before anything is made, and may refuse them.

    Raises:
        UncleanRepository: the repository is not in a state that a campaign can start from.
        KernwrightError: an option of the plan is wrong.
    """
    clean = check_hygiene(folder, base)
    settings = plan.settings(clean)
    check(settings)
    files = _starting_files(plan, settings)
    _exclude(clean.repository)
    campaign = Campaign(settings)
    with campaign_lock(campaign.folder) as lock:
        if problem := taken(campaign.name, clean.repository, settings.ledger):  # another process was faster
            raise problem
        repository = Repository(clean.repository.root, kept_open=(lock,))
        _make_worktree(campaign, repository)
        _write_start(campaign, files)
        Versions(campaign, campaign.git(kept_open=(lock,))).commit_start()
        if plan.candidate is not None:
            (campaign.folder / GIVEN).touch()
        with replacing(campaign.folder / SETTINGS_FILE) as stream:
            stream.write(settings.model_dump_json(indent=1).encode() + b"\n")
    return campaign


def _starting_files(plan: CampaignPlan, settings: CampaignSettings) -> Mapping[str, bytes]:
    if plan.candidate is not None:
        return given_candidate(plan.candidate, settings.op)
    return starting_candidate(find_task(settings.task), settings.op, settings.language)


def _exclude(repository: Repository) -> None:
    """Let git ignore the folder of campaigns and of the ledger in this clone."""
    path = Path(repository.git("rev-parse", "--path-format=absolute", "--git-path", "info/exclude").strip())
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    if EXCLUDED not in text.splitlines():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text.rstrip()}\n{EXCLUDED}\n".lstrip(), encoding="utf-8")


def _make_worktree(campaign: Campaign, repository: Repository) -> None:
    """Make worktree and branch at the base commit. Remove what an interrupted start left."""
    if campaign.worktree.exists():
        with suppress(GitFailed):
            repository.git("worktree", "remove", "--force", "--force", str(campaign.worktree))
        shutil.rmtree(campaign.worktree, ignore_errors=True)
    repository.git("worktree", "prune")
    if repository.commit_of(f"refs/heads/{campaign.branch}"):
        repository.git("branch", "-D", campaign.branch)
    if repository.commit_of(f"refs/heads/{BRANCHES}"):
        raise KernwrightError(
            f"the branch {BRANCHES} exists, so that git cannot make the branch {campaign.branch}",
            f"rename it: `git branch -m {BRANCHES} NEW_NAME`",
        )
    base = campaign.settings.base_commit
    repository.git("worktree", "add", "-q", "-b", campaign.branch, str(campaign.worktree), base)


def _write_start(campaign: Campaign, files: Mapping[str, bytes]) -> None:
    """Write the starting version and the generated files."""
    if campaign.agent_folder.exists():  # the base commit has an earlier campaign of this name
        shutil.rmtree(campaign.agent_folder)
    for name, data in files.items():
        path = campaign.agent_folder / SOLUTION / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (campaign.agent_folder / "context").mkdir()
    entry = HistoryEntry("", 0, "", "", CampaignStarted(campaign=campaign.name, settings=campaign.settings))
    write_generated_files(campaign, History([entry]), ())
