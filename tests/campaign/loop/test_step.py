"""Edits that cannot be committed, and what an interrupted agent left. Nothing is judged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tiny_campaign import git, make_campaign
from typer.testing import CliRunner

from kernwright.campaign.agents.agent import AgentResult, Assignment
from kernwright.campaign.agents.idea_file import take_idea
from kernwright.campaign.campaign import Campaign
from kernwright.campaign.loop.run import prepare, run_campaign
from kernwright.campaign.loop.step import NothingChanged, step_by_hand, step_with
from kernwright.campaign.loop.work import CampaignWork
from kernwright.campaign.record import BaselineMeasured, Bottleneck, Idea, IterationEnded, RowFigure
from kernwright.campaign.settings import Budget
from kernwright.campaign.state.book import working_on
from kernwright.cli.main import app
from kernwright.core.errors import BadFile
from kernwright.judge.rounds.progress import NoProgress, Progress

IDEA = Idea(hypothesis="h", direction="d")


@dataclass(frozen=True)
class EditingAgent:
    """Changes the solution in its own way."""

    change: Callable[[Path], object]
    name: str = "program"
    cost_usd: float = 0.0
    assignments: list[Assignment] = field(default_factory=list)

    def edit(self, assignment: Assignment, progress: Progress) -> AgentResult:
        self.assignments.append(assignment)
        self.change(assignment.campaign.solution)
        return AgentResult(ending="finished", idea=IDEA, cost_usd=self.cost_usd)


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    return unmeasured(tmp_path_factory.mktemp("steps"))


def unmeasured(folder: Path, **options: object) -> Campaign:
    """Return a campaign with a baseline that was not measured: nothing here is judged."""
    made = make_campaign(folder, **options)
    rows = (RowFigure(id="r64", baseline_us=4000.0),)
    bottleneck = Bottleneck(row="r64", unavailable="no GPU")
    with working_on(made) as book:
        book.append(BaselineMeasured(campaign=made.name, verdict_run="none", rows=rows, bottleneck=bottleneck))
    return made


def work(campaign: Campaign, change: Callable[[Path], object]) -> IterationEnded:
    with working_on(campaign) as book:
        own, agent = CampaignWork(book, NoProgress(), lambda line: None), EditingAgent(change)
        prepare(own, agent)
        if len(book.history.iterations) >= 3:
            own.take_profile()
            own.reread()
        ended = step_with(own, agent, Assignment(campaign, own.last_number + 1)).ended
    assert ended is not None
    return ended


def sparse(solution: Path) -> None:
    with (solution / "large.bin").open("wb") as stream:
        stream.truncate(1 << 40)


CHANGES: dict[str, Callable[[Path], object]] = {
    "a\\nb.py": lambda solution: (solution / "a\nb.py").write_text(""),
    "git~1": lambda solution: (solution / "git~1").write_text(""),
    "64 MiB": sparse,
}


def test_a_person_is_told_which_file_no_commit_can_hold(campaign: Campaign) -> None:
    """Otherwise the commit would hold another candidate than the record says, and the campaign could not go on."""
    changes = CHANGES | {"link.h": lambda solution: (solution / "link.h").symlink_to("/etc/passwd")}
    for named, change in changes.items():
        change(campaign.solution)
        with working_on(campaign) as book, pytest.raises(BadFile) as refused:
            step_by_hand(CampaignWork(book, NoProgress(), lambda line: None), IDEA)
        assert named in refused.value.cause
        git(campaign.worktree, "clean", "-fdq")
    assert campaign.history().iterations == [], "the idea was not recorded"


def test_an_agent_uses_an_iteration_with_such_a_file(campaign: Campaign) -> None:
    for named, change in CHANGES.items():
        ended = work(campaign, change)
        assert ended.verdict_run is None and ended.reason.startswith("failed: solution")
        assert named in ended.reason
        assert git(campaign.worktree, "status", "--porcelain") == ""


def test_an_idea_that_is_refused_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    campaign = unmeasured(tmp_path, agent="human")
    monkeypatch.chdir(campaign.worktree)
    (campaign.agent_folder / "idea.json").write_text(IDEA.model_dump_json())
    refused = CliRunner().invoke(app, ["campaign", "step"]).exception
    assert isinstance(refused, NothingChanged)
    assert take_idea(campaign.agent_folder).idea == IDEA


def test_a_run_ends_with_an_agent_that_edits_nothing(tmp_path: Path) -> None:
    campaign = unmeasured(tmp_path)
    agent = EditingAgent(lambda solution: None)
    for calls in (5, 10):  # the same command tries again
        with working_on(campaign) as book:
            own = CampaignWork(book, NoProgress(), lambda line: None)
            reason = run_campaign(own, agent, Budget(minutes=60))
        assert reason == "agent program edited nothing in 5 calls, the last one no_change"
        assert len(campaign.history().iterations) == calls


def test_a_smaller_limit_of_cost_for_an_interrupted_iteration(tmp_path: Path) -> None:
    campaign = unmeasured(tmp_path)

    def interrupted(solution: Path) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work(campaign, interrupted)
    agent = EditingAgent(lambda solution: None, cost_usd=2.0)
    with working_on(campaign) as book:
        own = CampaignWork(book, NoProgress(), lambda line: None)
        run_campaign(own, agent, Budget(cost_usd=1.0))
        (only,) = agent.assignments
        assert only.cost_limit_usd == 1.0
    with pytest.raises(KeyboardInterrupt):
        work(campaign, interrupted)
    with working_on(campaign) as book:
        own = CampaignWork(book, NoProgress(), lambda line: None)
        run_campaign(own, agent, Budget(cost_usd=1.0))
    assert agent.assignments[-1].cost_limit_usd == 0.0, "2 of 1 USD are used"


def test_files_behind_a_link_of_an_interrupted_agent_are_left_alone(campaign: Campaign, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("of a person")

    def interrupted(solution: Path) -> None:
        solution.rename(solution.with_name("moved"))
        solution.symlink_to(tmp_path)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work(campaign, interrupted)
    assert campaign.history().open_iteration is not None
    assert work(campaign, lambda solution: None).reason.startswith("no_change")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    assert campaign.solution.is_dir() and not campaign.solution.is_symlink()
