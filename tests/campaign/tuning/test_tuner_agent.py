"""The tuner as an agent: one configuration an iteration, continued from the ledger."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made_campaign import IDENTITY, make_campaign

from kernwright.campaign.agents.agent import NOTHING_LEFT, AgentResult, Assignment
from kernwright.campaign.agents.lookup import find_agent
from kernwright.campaign.campaign import Campaign
from kernwright.campaign.record import IterationEdited, IterationEnded, IterationStarted
from kernwright.campaign.tuning.template import Template
from kernwright.core.errors import EnvironmentProblem

SOURCE = """# kernwright tune: begin
ROWS = 1
BLOCK = 64
# kernwright tune: end
def twice(x):
    return x + x
"""
SPACE = """
constraints = ["ROWS * BLOCK <= 512"]
[parameters.ROWS]
choices = [1, 2, 4]
default = 1
[parameters.BLOCK]
choices = [64, 128, 256]
default = 64
meaning = "columns at once"
"""


@pytest.fixture
def campaign(tmp_path: Path, write_doubling: Callable[..., Path], write_candidate: Callable[..., Path]) -> Campaign:
    own = make_campaign(tmp_path, write_doubling(tmp_path / "tasks" / "doubling", 32))
    write_candidate(own.solution, SOURCE, op="twice")
    (own.solution / "space.toml").write_text(SPACE)
    return own


def record(campaign: Campaign, number: int, result: AgentResult, **ended: Any) -> None:
    """Write the records of an iteration, as the loop does."""
    common = {"campaign": campaign.name, "number": number}
    outcome = {"improved": False, "kept": False} | ended
    bodies = (
        IterationStarted(**common, agent="tuner", parent_commit="0" * 40),
        IterationEdited(**common, ending=result.ending, idea=result.idea, note=result.note, commit="HEAD"),
        IterationEnded(**common, **outcome),
    )
    with campaign.ledger.open_run({"tool": "test"}) as run:
        for body in bodies:
            run.append(body.kind, body.model_dump(mode="json"))


def current(campaign: Campaign) -> dict[str, Any]:
    return dict(Template.read(campaign.solution).current() or {})


def test_a_kernel_that_is_never_right_ends_the_search(campaign: Campaign, quiet: Any) -> None:
    agent = find_agent("tuner", campaign.settings.repository)
    for number in range(1, 4):
        result = agent.edit(Assignment(campaign, number), quiet)
        assert result.ending == "finished", result.reason
        record(campaign, number, result, verdict="failed", reason="row r64: x must be [B, 64]")
    last = agent.edit(Assignment(campaign, 4), quiet)
    assert last.ending == "no_change" and last.reason.startswith(NOTHING_LEFT)
    assert "none of 3 configurations gave correct results" in last.reason and "x must be [B, 64]" in last.reason


def test_correct_kernels_without_times_do_not_end_the_search(campaign: Campaign, quiet: Any) -> None:
    """A Triton candidate on a CPU is checked and not timed."""
    agent = find_agent("tuner", campaign.settings.repository)
    for number in range(1, 5):
        result = agent.edit(Assignment(campaign, number), quiet)
        assert result.ending == "finished", result.reason
        record(campaign, number, result, verdict="inconclusive")


def test_the_tuner_goes_through_its_space_and_continues_from_the_ledger(campaign: Campaign, quiet: Any) -> None:
    seen: list[dict[str, Any]] = []
    agent = find_agent("tuner", campaign.settings.repository)
    for number in range(1, 9):
        result = agent.edit(Assignment(campaign, number), quiet)
        assert result.ending == "finished" and result.idea is not None, result.reason
        seen.append(current(campaign))
        ratio = 1 + seen[-1]["ROWS"] / 10 if seen[-1]["BLOCK"] != 256 else None
        verdict = "incorrect" if ratio is None else "faster"
        best = number == 1 or (ratio or 0) > max(1 + each["ROWS"] / 10 for each in seen[:-1])
        record(campaign, number, result, verdict=verdict, ratio=ratio, improved=best, kept=best)
    assert seen[0] == {"ROWS": 1, "BLOCK": 64} and "a good start" in agent_hypotheses(campaign)[0]
    assert len({str(each) for each in seen}) == 8 and all(each["ROWS"] * each["BLOCK"] <= 512 for each in seen)
    last = agent.edit(Assignment(campaign, 9), quiet)
    assert last.ending == "no_change"
    assert last.reason.startswith("nothing is left to try: 8 configurations were judged")
    predictions = [each.idea.predicted_ratio for each in campaign.history().iterations if each.idea]
    assert predictions[:2] == [None, None] and any(predictions), "an estimate needs a few results"


def agent_hypotheses(campaign: Campaign) -> list[str]:
    return [each.idea.hypothesis for each in campaign.history().iterations if each.idea]


def test_refused_directions_are_left_out(campaign: Campaign, quiet: Any) -> None:
    agent = find_agent("tuner", campaign.settings.repository)
    record(campaign, 1, agent.edit(Assignment(campaign, 1), quiet), verdict="same", ratio=1.0, kept=True)
    result = agent.edit(Assignment(campaign, 2, avoid_directions=("rows", "block+rows")), quiet)
    assert result.idea is not None and result.idea.direction == "block", result
    everything = ("rows", "block+rows", "block")
    stuck = agent.edit(Assignment(campaign, 2, avoid_directions=everything), quiet)
    assert stuck.ending == "no_change"
    assert stuck.reason.startswith("every other configuration has a refused direction")
    assert b"the direction block is refused now" in stuck.transcript


def test_a_version_that_a_person_gave_is_known_from_its_commit(campaign: Campaign, quiet: Any) -> None:
    (campaign.solution / "kernel.py").write_text(SOURCE.replace("ROWS = 1", "ROWS = 4"))
    for words in (["add", "-A"], ["commit", "-q", "-m", "Give a version"]):
        subprocess.run(["git", *IDENTITY, "-C", str(campaign.worktree), *words], check=True)
    record(campaign, 1, AgentResult(ending="finished"), verdict="faster", ratio=1.2, improved=True, kept=True)
    result = find_agent("tuner", campaign.settings.repository).edit(Assignment(campaign, 2), quiet)
    assert current(campaign) != {"ROWS": 4, "BLOCK": 64}
    assert result.idea is not None and "ROWS from 4 to" in result.idea.hypothesis
    assert b"1 judged before" in result.transcript


@pytest.mark.skipif(sys.platform != "linux", reason="compares ELF files")
def test_a_duplicate_binary_is_not_judged_again(
    campaign: Campaign, write_candidate: Callable[..., Path], quiet: Any
) -> None:
    block = "// kernwright tune: begin\n#define ROWS 1\n#define BLOCK 64\n// kernwright tune: end\n"
    (campaign.solution / "kernel.py").unlink()
    write_candidate(campaign.solution, block + "int f() { return ROWS; }\n", op="twice", language="cpp")
    agent = find_agent("tuner", campaign.settings.repository)
    for number in range(1, 4):
        result = agent.edit(Assignment(campaign, number), quiet)
        assert result.ending == "finished", result.reason
        record(campaign, number, result, verdict="same", ratio=1.0, kept=number == 1)
    last = agent.edit(Assignment(campaign, 4), quiet)
    assert last.reason.startswith("nothing is left to try: 3"), "BLOCK changes no instruction"
    assert b"the machine code of iteration" in last.transcript


def test_what_the_tuner_lacks_is_named(campaign: Campaign, quiet: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = find_agent("tuner", campaign.settings.repository)
    (campaign.solution / "space.toml").unlink()
    result = agent.edit(Assignment(campaign, 1), quiet)
    assert result.ending == "no_change" and result.reason.startswith(NOTHING_LEFT), "the iteration can be finished"
    assert "space.toml: does not exist" in result.reason
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(EnvironmentProblem, match=r'needs optuna.*\n  remedy: pip install "kernwright\[camp'):
        find_agent("tuner", campaign.settings.repository)
