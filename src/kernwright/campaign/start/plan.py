"""CampaignPlan: a user's request for a campaign, and how it becomes settings."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from kernwright.baselines.lookup import find_baseline
from kernwright.campaign.agents.lookup import TUNER
from kernwright.campaign.campaign import BRANCHES, campaigns_folder
from kernwright.campaign.history import campaigns_in
from kernwright.campaign.lookup import SETTINGS_FILE
from kernwright.campaign.repository import Repository
from kernwright.campaign.settings import Budget, CampaignLanguage, CampaignSettings
from kernwright.campaign.start.hygiene import CleanBase
from kernwright.campaign.state.versions import STARTED
from kernwright.campaign.tuning.template import Template
from kernwright.core.errors import EnvironmentProblem, KernwrightError, did_you_mean
from kernwright.core.plain_text import comparable_name
from kernwright.judge.device.selection import refuse_device
from kernwright.judge.request import NEEDS_CUDA, JudgeRequest, policy_of
from kernwright.ledger.ledger import Ledger
from kernwright.tasks.candidate import SHIPPED, load_candidate
from kernwright.tasks.catalog import find_task
from kernwright.tasks.task import Task

NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,99}")  # the names of its folders have at most 255 bytes


@dataclass(frozen=True, kw_only=True)
class CampaignPlan:
    """The options of `kernwright campaign start`."""

    task: str
    op: str | None = None
    name: str | None = None
    rows: str | None = None
    device: str = "cpu"
    baseline: str = "eager"
    metric: str | None = None
    language: CampaignLanguage | None = None
    agent: str = "human"
    agent_command: str | None = None
    agent_walls: bool = True
    budget: Budget = field(default_factory=Budget)
    target_ratio: float | None = None
    ledger: Path | None = None
    candidate: Path | None = None  # an existing candidate to start from

    def settings(self, base: CleanBase) -> CampaignSettings:
        """Return the settings of the campaign.

        Raises:
            KernwrightError: an option is wrong.
        """
        refuse_device(self.device)
        task = find_task(self.task)
        op = self._op(task)
        language = self._language()
        self._refuse_language(language)
        self._refuse_tuner(op)
        task.select(self.rows, op, default="smoke" if self.device == "cpu" else "production")
        metric = policy_of(JudgeRequest(task=self.task, candidate=None, metric=self.metric), task).decides
        root = base.repository.root
        ledger = (self.ledger or root / ".kernwright" / "ledger").absolute()
        try:
            return CampaignSettings(
                name=self._name(op, base.repository, ledger),
                task=str(task.folder.absolute()),
                task_digest=task.digest,
                op=op,
                rows=self.rows,
                device=self.device,
                baseline=self.baseline,
                baseline_digest=find_baseline(task, self.baseline).digest,
                metric=metric,
                language=language,
                agent=self.agent,
                agent_command=self.agent_command,
                agent_walls=self.agent_walls,
                budget=self.budget,
                target_ratio=self.target_ratio,
                repository=root,
                base_commit=base.commit,
                ledger=ledger,
            )
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise KernwrightError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}", "correct the option") from None

    def _op(self, task: Task) -> str:
        known = list(task.schemas)
        if self.op is not None:
            if self.op not in known:
                raise KernwrightError(
                    f"task {task.name} has no op {self.op!r}",
                    did_you_mean(self.op, known, f"one of {', '.join(known)}"),
                )
            return self.op
        if self.candidate is not None:
            return load_candidate(self.candidate).file.op
        if len(known) > 1:
            raise KernwrightError(
                f"task {task.name} has {len(known)} ops, and a campaign is about one",
                f"choose one with --op: {', '.join(known)}",
            )
        return known[0]

    def _language(self) -> CampaignLanguage:
        if self.candidate is not None:
            found = load_candidate(self.candidate).file.language
            if self.language not in (None, found):
                raise KernwrightError(f"--from {self.candidate} is written in {found}", "leave --language out")
            return found
        return self.language or "python"

    def _refuse_language(self, language: CampaignLanguage) -> None:
        if self.device != "cpu":
            return
        if language in NEEDS_CUDA:
            raise EnvironmentProblem(f"{language} does not run on a CPU", "use --device cuda, or --language cpp")
        if language == "triton":
            raise EnvironmentProblem(
                "Triton candidates are not timed on a CPU, where Triton runs in an interpreter",
                "use --device cuda, or --language cpp",
            )

    def _refuse_tuner(self, op: str) -> None:
        """Refuse the tuner for a candidate that declares no parameters."""
        if self.agent != TUNER:
            return
        if self.candidate is None:
            raise KernwrightError(
                "the agent tuner needs a candidate that declares its parameters",
                f"give one with --from DIR: `kernwright candidate new --op {op} --language cpp` writes one",
            )
        Template.read(self.candidate)

    def _name(self, op: str, repository: Repository, ledger: Path) -> str:
        if self.name is not None:
            refuse_name(self.name)
            if problem := taken(self.name, repository, ledger):
                raise problem
            return self.name
        plain = re.sub(r"[^a-z0-9_.-]", "-", op.lower()).strip("-_.")[:90] or "campaign"
        numbered = (f"{plain}-{number}" if number > 1 else plain for number in range(1, 10_000))
        return next(name for name in numbered if not taken(name, repository, ledger))


def refuse_name(name: str) -> None:
    """Refuse a name that cannot be that of a branch, a folder and a candidate."""
    usable = NAME.fullmatch(name) and ".." not in name and not name.endswith((".lock", "."))
    if not usable or comparable_name(name) == comparable_name(SHIPPED):
        raise KernwrightError(
            f"a campaign cannot be called {name!r}",
            "use at most 100 lower-case letters, digits, dashes, dots and underscores; kernwright is the name of the "
            "shipped ops",
        )


def taken(name: str, repository: Repository, ledger: Path) -> KernwrightError | None:
    """Return why a campaign cannot have this name; None if it can. The remains of an interrupted start do not count."""
    folder, branch = campaigns_folder(repository.root) / name, f"{BRANCHES}/{name}"
    if (folder / SETTINGS_FILE).exists():
        return KernwrightError(
            f"there is a campaign {name} already",
            f"`kernwright campaign status {name}` says how it continues; or choose another --name",
        )
    book = Ledger(ledger)
    if book.exists and name in campaigns_in(book):
        return KernwrightError(
            f"{ledger} has records of a campaign {name} already, whose folder was deleted", "choose another --name"
        )
    commit = repository.commit_of(f"refs/heads/{branch}")
    if commit is None or (folder.is_dir() and _is_unused(commit, name, repository)):
        return None
    return KernwrightError(
        f"there is a branch {branch} already",
        f"choose another --name, or delete it: `git worktree prune`, then `git branch -D {branch}`",
    )


def _is_unused(commit: str, name: str, repository: Repository) -> bool:
    """Return whether a branch can be removed: it has nothing beyond other branches, or only the start of a campaign."""
    if repository.trailer(commit, STARTED) == name:
        return True
    others = ("--not", f"--exclude=refs/heads/{BRANCHES}/{name}", "--branches", "--remotes", "--tags")
    return repository.git("rev-list", "--count", commit, *others).strip() == "0"
