"""One real campaign: a program behind walls as the agent, the real judge, real git.

All checks share it, because judging takes time.
"""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from tiny_campaign import CANDIDATE, PROGRAM, git, kernel, make_campaign, make_candidate, write_plan
from typer.testing import CliRunner

from kernwright.campaign.agents.agent import Agent, AgentResult, Assignment
from kernwright.campaign.agents.lookup import find_agent
from kernwright.campaign.campaign import Campaign
from kernwright.campaign.history import History, Iteration
from kernwright.campaign.loop.run import run_campaign
from kernwright.campaign.loop.status import CampaignStatus
from kernwright.campaign.loop.step import NothingChanged, StepRefused, UnjudgedEdit, step_by_hand
from kernwright.campaign.loop.work import CampaignWork
from kernwright.campaign.record import CampaignEnded, Idea
from kernwright.campaign.repository import Repository
from kernwright.campaign.settings import Budget
from kernwright.campaign.state.book import is_worked_on, working_on
from kernwright.campaign.state.versions import Versions
from kernwright.cli.main import app
from kernwright.core.errors import EnvironmentProblem
from kernwright.judge.record.recorded import recorded_bodies
from kernwright.judge.rounds.progress import NoProgress, Progress
from kernwright.ledger.verify import verify
from kernwright.report.campaign.page import render_campaign

pytestmark = [pytest.mark.slow, pytest.mark.clock]

WRONG = kernel(0, "x * 3")


def counting(steps: int) -> str:
    """Return a kernel that counts before it computes.

    It counts instead of sleeping, because some machines wake up from a short sleep half a millisecond late. It must
    take some time, because the ratio of milliseconds to a few microseconds is very noisy.
    """
    return f"def twice(x):\n    for _ in range({steps}):\n        pass\n    return x * 2\n"


START, SHORT = counting(15_000), counting(2_000)
SLOW_LINE = START.splitlines()[1]
PLAN = (
    (WRONG, "never-used", None),  # iteration 1 is the starting version
    (SHORT, "count-less", 5.0),
    (WRONG, "wrong", 1.5),
    (WRONG, "wrong-again", 1.5),
    (SHORT, "nothing-new", 1.5),
    (kernel(1), "Wrong", 1.5),  # a direction that the stop rules refuse, whatever its case
)
BEST = 2
EDIT = kernel(2)


@dataclass(frozen=True)
class InterruptedAgent:
    """Writes half an edit, and then Ctrl-C comes."""

    name: str = "command"

    def edit(self, assignment: Assignment, progress: Progress) -> AgentResult:
        (assignment.campaign.solution / "kernel.py").write_text("def twice(")
        raise KeyboardInterrupt


@dataclass(frozen=True)
class Ran:
    campaign: Campaign
    reason: str
    agent: Agent

    @property
    def history(self) -> History:
        return self.campaign.history()

    def iteration(self, number: int) -> Iteration:
        return self.history.iterations[number - 1]


def call(campaign: Campaign, *words: str) -> str:
    """Return the output of a command in the campaign's worktree."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(campaign.agent_folder)
        result = CliRunner().invoke(app, ["campaign", *words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, private_tmp: Path) -> Ran:
    folder = tmp_path_factory.mktemp("campaign")
    plan = write_plan(folder / "plan.json", *PLAN)
    (folder / "program.py").write_text(PROGRAM)
    command = shlex.join([sys.executable, str(folder / "program.py"), str(plan)])
    campaign = make_campaign(
        folder,
        candidate=make_candidate(folder / "given", CANDIDATE | {"kernel.py": START}),
        agent="command",
        agent_command=command,
    )
    agent = find_agent("command", campaign.settings.repository, command)
    told: list[str] = []
    limits = Budget(iterations=5)  # the starting version does not count
    with pytest.raises(KeyboardInterrupt), working_on(campaign) as book:
        run_campaign(CampaignWork(book, NoProgress(), told.append), InterruptedAgent(), limits)
    with working_on(campaign) as book:
        reason = run_campaign(CampaignWork(book, NoProgress(), told.append), agent, limits)
    return Ran(campaign, reason, agent)


def test_the_starting_version_is_judged_and_stays(ran: Ran) -> None:
    first = ran.iteration(1)
    assert (first.started.agent, first.edited and first.edited.commit) == ("start", first.started.parent_commit)
    assert first.ended is not None and first.ended.kept and first.ended.ratio is not None


def test_a_gain_is_confirmed_with_fresh_seeds_and_kept(ran: Ran) -> None:
    ended = ran.iteration(BEST).ended
    assert ended is not None and ended.improved and ended.kept and ended.verdict == "faster"
    assert ended.confirmed_run is not None and ended.confirmed_run != ended.verdict_run
    runs = [ended.verdict_run, ended.confirmed_run]
    verdicts = [body.verdict() for body in recorded_bodies(ran.campaign.ledger, runs=[str(run) for run in runs])]
    assert all(verdict.evidence and not verdict.quick for verdict in verdicts)
    assert len({verdict.provenance["seed"] for verdict in verdicts}) == 2
    assert ended.ratio == verdicts[1].headline["stream"].geomean  # type: ignore[union-attr]
    assert {verdict.candidate for verdict in verdicts} == {"double"}
    assert ran.history.best == ran.iteration(BEST)


def test_an_interrupted_agent_starts_again_from_the_best_version(ran: Ran) -> None:
    edited = ran.iteration(BEST).edited
    assert edited is not None and edited.commit is not None
    kept = git(ran.campaign.worktree, "show", f"{edited.commit}:./campaigns/double/solution/kernel.py")
    assert kept == SHORT
    assert [each.number for each in ran.history.iterations] == [1, 2, 3, 4, 5, 6]
    assert len(ran.history.entries) == len({entry.hash for entry in ran.history.entries})


def test_a_wrong_edit_is_recorded_and_taken_back(ran: Ran) -> None:
    wrong = ran.iteration(3)
    assert wrong.ended is not None and wrong.ended.verdict == "incorrect" and not wrong.ended.kept
    assert wrong.ended.prediction == "refuted" and "correct it first" in wrong.ended.next_step
    assert wrong.edited is not None and wrong.edited.commit is not None
    versions = Versions(ran.campaign, Repository(ran.campaign.worktree))
    assert "+    return x * 3" in versions.diff(wrong.started.parent_commit, wrong.edited.commit)
    assert versions.edit() == versions.at("HEAD") == versions.at(str(ran.iteration(BEST).edited.commit))  # type: ignore[union-attr]


def test_a_candidate_is_judged_once(ran: Ran) -> None:
    first, again = ran.iteration(3).ended, ran.iteration(4).ended
    assert first is not None and again is not None and again.verdict_run == first.verdict_run
    assert "iteration 3" in again.reason and not again.kept


def test_an_agent_that_changes_nothing_uses_an_iteration(ran: Ran) -> None:
    unchanged = ran.iteration(5)
    assert unchanged.edited is not None and unchanged.edited.ending == "no_change" and unchanged.edited.commit is None
    assert unchanged.ended is not None and unchanged.ended.verdict_run is None


def test_the_run_meets_the_stop_rules_and_refuses_an_old_direction(ran: Ran) -> None:
    assert [each.after_iteration for each in ran.history.profiles] == [5]
    assert [each.after_iteration for each in ran.history.rereads] == [5]
    assert "cpu" in str(ran.history.profiles[0].bottleneck.unavailable)
    refused = ran.iteration(6).ended
    assert refused is not None and refused.verdict_run is None and "'wrong'" in refused.reason


def test_the_end_is_recorded_once_with_its_reason(ran: Ran) -> None:
    before = len(ran.history.entries)
    assert f"ended: {ran.reason}" in call(ran.campaign, "run", "double", "--iterations", "5")
    assert len(ran.history.entries) == before, "the same command does nothing more"
    last = ran.history.entries[-1].body
    assert isinstance(last, CampaignEnded) and last.best_iteration == BEST and "5 iteration" in last.reason


def test_everything_is_in_the_ledger_and_in_git(ran: Ran) -> None:
    assert verify(ran.campaign.settings.ledger) == []
    transcript = ran.iteration(BEST).edited.transcript  # type: ignore[union-attr]
    assert b"edited kernel.py" in ran.campaign.ledger.blobs.read(str(transcript).removeprefix("blob:"))
    assert git(ran.campaign.worktree, "status", "--porcelain") == ""
    subjects = git(ran.campaign.worktree, "log", "--format=%s").splitlines()
    assert "Iteration 3: try wrong" in subjects and "Record iteration 3: incorrect, not kept" in subjects


def test_the_generated_files_tell_what_was_tried(ran: Ran) -> None:
    text = (ran.campaign.agent_folder / "ITERATIONS.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| ") and line[2].isdigit()]
    assert [row.split(" | ")[1] for row in rows] == [
        "start", "count-less", "wrong", "wrong-again", "nothing-new", "wrong",
    ]  # fmt: skip
    card = (ran.campaign.agent_folder / "prompt.md").read_text()
    assert "Refused directions: wrong-again, nothing-new, wrong" in card
    assert str(ran.campaign.settings.task) in card and "--quick --baseline slow" in card
    assert "Bandwidth limit" in (ran.campaign.agent_folder / "baseline.md").read_text()


def test_status_and_page_agree_with_the_ledger(ran: Ran) -> None:
    status = CampaignStatus.of(ran.campaign, ran.history, is_worked_on(ran.campaign.folder))
    assert (status.standing.iteration, status.usage.iterations, status.is_running) == (BEST, 5, False)
    data = json.loads(json.dumps(status.as_json()))
    assert {each["rule"] for each in data["refused"]} == {"profile", "reread"}
    page = render_campaign(ran.campaign, ran.history)
    assert all(f"try {direction}" in page for _, direction, _ in PLAN[1:]) and f"-{SLOW_LINE}" in page
    running = render_campaign(ran.campaign, History(ran.history.entries[:-1]), reloads=True)
    assert 'http-equiv="refresh"' in running and "refresh" not in page, "a page reloads until the campaign has ended"


def test_iterations_and_differences_are_shown(ran: Ran) -> None:
    shown = call(ran.campaign, "show", str(BEST))
    assert "hypothesis: try count-less" in shown and "row r64: baseline" in shown and "edited kernel.py" in shown
    assert f"-{SLOW_LINE}" in shown
    assert json.loads(call(ran.campaign, "show", "3", "--json"))["ended"]["verdict"] == "incorrect"
    assert f"-{SLOW_LINE}" in call(ran.campaign, "diff", "start", "best")
    assert "+    return x * 3" in call(ran.campaign, "diff", "best", "3")
    assert "incorrect, not kept" in call(ran.campaign, "plot")
    assert Path(ran.campaign.page).is_file(), "the command `run` writes the page"


def test_a_person_works_under_the_same_rules(ran: Ran) -> None:
    """This test adds to the campaign, so it comes last."""
    idea = Idea(hypothesis="by hand", direction="by-hand", predicted_ratio=1.1)
    with working_on(ran.campaign) as book:
        work = CampaignWork(book, NoProgress(), lambda line: None)
        with pytest.raises(StepRefused, match="no profile"):
            step_by_hand(work, idea)
        work.take_profile()
        work.reread()
        with pytest.raises(StepRefused, match="'Wrong again'"):
            step_by_hand(work, idea.model_copy(update={"direction": "Wrong again"}))
        with pytest.raises(NothingChanged):
            step_by_hand(work, idea)
        (ran.campaign.solution / "kernel.py").write_text(WRONG + "# by hand\n")
        with pytest.raises(UnjudgedEdit):
            run_campaign(work, ran.agent, Budget(iterations=10))
        done = step_by_hand(work, idea)
        assert done.ended is not None and done.ended.verdict == "incorrect" and done.started.agent == "human"
        assert (ran.campaign.solution / "kernel.py").read_text() == SHORT
        work.take_profile()
        work.reread()
        tasks = Path(ran.campaign.settings.task, "task.toml")
        tasks.write_text(tasks.read_text().replace("rtol = 1e-5", "rtol = 1e-1"))
        (ran.campaign.solution / "kernel.py").write_text(EDIT)
        with pytest.raises(EnvironmentProblem, match="task tiny changed"):
            step_by_hand(work, idea.model_copy(update={"direction": "softer-task"}))
    assert ran.history.open_iteration is not None, "the idea waits for the task"
