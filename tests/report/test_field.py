"""The field's page: made of a ledger alone, and found out when it says something else."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from kernwright.campaign.ledger import Ledger
from kernwright.campaign.sweep import Sweep, legs_of
from kernwright.cli.main import app
from kernwright.errors import KernwrightError
from kernwright.judge.verdict import Verdict
from kernwright.report.field import Field
from kernwright.tasks.task import Task, load_task

OPS = """
from torch import Tensor
from kernwright.ops.definition import define

@define(outputs=["y"], activations=["x"])
def twice(x: Tensor) -> Tensor:
    return x * 2
"""
BASELINES = """
def slow(op):
    def run(x):
        for _ in range(8):
            y = x + x
        return y
    return run

def never(op):
    def run(x):
        raise RuntimeError("not here")
    return run
"""


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory, write_task: Callable[..., Path], make_row: Any, quiet: Any) -> Path:
    """A real sweep of a small task: eager against itself, a slow contender, and one that cannot run."""
    root = tmp_path_factory.mktemp("field")
    rows = [make_row(f"r{n}", "twice", {"x": ["S", "D"]}, {"y": ["S", "D"]}, axes={"S": 64, "D": n}) for n in (64, 80)]
    folder = write_task(root / "tasks" / "tiny", ops=OPS, rows=rows)
    (folder / "baselines.py").write_text(BASELINES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNWRIGHT_LOCKS", str(root))
        legs = list(legs_of([load_task(folder)], "eager", ["eager", "slow", "never"]))
        list(Sweep(legs, rows="smoke", device="cpu", ledger=root / "ledger", wait_s=60.0).run(quiet))
    return root


@pytest.fixture
def task(swept: Path) -> Task:
    return load_task(swept / "tasks" / "tiny")


def gathered(swept: Path, task: Task) -> Field:
    return Field.gathered(Ledger(swept / "ledger"), [task], "eager", "cpu", "smoke")


def test_every_contender_stands_on_every_row(swept: Path, task: Task) -> None:
    field = gathered(swept, task)
    assert field.contenders == ["never", "slow"]
    assert field.stale == []
    for row in field.wanted(task):
        slow, never = (field.standing(task, row, name) for name in ("slow", "never"))
        assert slow and 0 < slow.gain < 1
        assert never and never.row.verdict == "failed" and never.gain == 0
        assert field.best(task, row) is None, "nobody gains: the baseline itself is best"
    assert field.against_itself()[0] == 2
    mean = field.geomean([task], "slow", "stream")
    assert mean is not None and mean[0] < 1 and mean[1] == 2
    assert field.geomean([task], "never", "stream") is None


def test_the_page_shows_times_ratios_and_reasons(swept: Path, task: Task) -> None:
    text = gathered(swept, task).page("kernwright results")
    (line,) = (line for line in text.splitlines() if line.startswith("| r64 |"))
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[3] == "failed" and "x (" in cells[4] and cells[5] == "eager"
    assert "- r64, never: failed:" in text and "not here" in text
    assert "eager against itself: 2 row-verdicts" in text


def results(swept: Path, page: Path, *words: str) -> Result:
    command = ["results", "--ledger", str(swept / "ledger"), "--page", str(page), "--device", "cpu", *words]
    return CliRunner().invoke(app, command)


def test_a_page_that_says_something_else_is_found_out(
    swept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNWRIGHT_TASKS", str(swept / "tasks"))
    page = tmp_path / "field.md"
    assert results(swept, page, "--check").exit_code == 1, "there is none yet"
    assert results(swept, page).exit_code == 0
    assert results(swept, page, "--check").exit_code == 0
    page.write_text(page.read_text().replace("failed", "faster", 1))
    assert results(swept, page, "--check").exit_code == 1


def test_a_ledger_without_a_sweep_makes_no_page(tmp_path: Path) -> None:
    page = tmp_path / "field.md"
    for words in ([], ["--check"]):
        result = results(tmp_path, page, *words)
        assert isinstance(result.exception, KernwrightError) and "no verdict of a sweep" in str(result.exception)
    assert not page.exists() and not (tmp_path / "ledger").exists()


def test_a_record_of_another_task_is_stale_and_enters_nothing(swept: Path, tmp_path: Path) -> None:
    file = shutil.copytree(swept / "tasks" / "tiny", tmp_path / "tiny") / "task.toml"
    file.write_text(file.read_text().replace("block_ms = 1.0", "block_ms = 1.1"))
    changed = load_task(file.parent)
    field = gathered(swept, changed)
    assert field.standings == {}
    assert len(field.stale) == sum(r.kind == "verdict" for r in Ledger(swept / "ledger").all_records())


def test_rows_that_were_judged_twice_say_how_well_they_repeat(swept: Path, task: Task) -> None:
    field = gathered(swept, task)
    assert field.repeats() == (0, 0), "nothing was judged twice"
    key = ("tiny", "r64", "slow")
    (standing,) = field.standings[key]
    timed = standing.result("device") or standing.result("stream")
    assert timed is not None
    for times in ((20.0, 20.3), (20.0, 21.0)):
        field.standings[key] = [
            type(standing)(
                standing.row.model_copy(update={"metrics": {"device": timed.model_copy(update={"candidate_us": us})}}),
                Verdict.model_validate(standing.run.model_dump()),
            )
            for us in times
        ]
        assert field.repeats() == (1, 1 if times[1] < 20.4 else 0)
