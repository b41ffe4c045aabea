"""A tuner keeps its measurements, resumes where it stopped, and accepts no winner by luck or with a wrong result."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from kernwright.campaign.tuning import trial, tuner
from kernwright.campaign.tuning.trial import Outcome, TuningTrial, Work
from kernwright.campaign.tuning.tuner import Tuner, candidates, find_device, works_of
from kernwright.cli.main import app
from kernwright.core.errors import KernwrightError
from kernwright.runtime.triton import tuning
from kernwright.runtime.triton.configurations import Configuration, Situation
from kernwright.runtime.triton.tuning import Entry, Place, TuningTable
from kernwright.tasks.catalog import find_task

pytest.importorskip("triton")
CPU = torch.device("cpu")
DEFAULT, OTHER = Configuration(1, 4096, 8), Configuration(2, 4096, 16)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("KERNWRIGHT_CACHE", str(tmp_path))
    tuning.forget()
    yield
    tuning.forget()


class Quiet:
    def phase(self, what: str, steps: int) -> None: ...
    def step(self, note: str) -> None: ...


def works(widths: tuple[int, ...] = (1024, 2048, 3072)) -> list[Work]:
    return works_of([find_task("norm_tanh_mul_add")], "smoke", ["norm_tanh_mul_add"], widths)


class Measured:
    """Replaces a trial by given times."""

    def __init__(self, work: Work, device: torch.device) -> None:
        self.work = work

    def run(self, given: list[Configuration]) -> Outcome:
        own = self.work.situation
        shape = {"rows": 2, "block": 4096, "warps": 8, "us": 2.0, "default_us": 3.0, "copy_us": 2.0}
        return Outcome(self.work, Entry(op=own.op, width=own.width, element_bytes=2, tokens="few", **shape))


def test_one_row_for_each_situation_at_the_widths_that_were_asked_for() -> None:
    found = works()
    assert [work.situation.width for work in found] == [1024, 2048, 3072]
    assert {work.situation.op for work in found} == {"norm_tanh_mul_add"}
    assert [work.row.axes["D"] for work in found] == [1024, 2048, 3072]
    assert works_of([find_task("norm_tanh_mul_add")], "smoke", ["rms_norm"]) == []


def test_production_rows_bring_all_kernels_and_no_situation_twice() -> None:
    found = [work.situation for work in works_of([find_task("residual_gate_add")], "production")]
    assert {own.op for own in found} == {"residual_gate", "broadcast_add"}
    assert len(found) == len(set(found)) and {own.is_few for own in found} == {True, False}


@pytest.mark.parametrize("op", ["rms_norm", "norm_scale_shift", "scale_shift"])
@pytest.mark.parametrize("width", [1, 96, 128, 768, 3072, 3073, 5120, 16384, 65536])
def test_a_table_accepts_every_candidate_configuration(op: str, width: int) -> None:
    own = candidates(Situation(op, width, 2, False))
    assert 3 <= len(own) <= 24 and len(own) == len(set(own))
    for each in own:
        entry = Entry(
            op=op, width=width, element_bytes=2, tokens="many", rows=each.rows, block=each.block, warps=each.warps
        )
        assert entry.configuration == each


def test_it_goes_on_where_it_was_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuner, "TuningTrial", Measured)
    first = Tuner(works(), CPU)
    going = first.run(Quiet())
    next(going)
    going.close()  # Ctrl-C between two trials does the same
    assert len(TuningTable.read(first.path).entries) == 1
    second = Tuner(works(), CPU)
    assert [work.situation.width for work in second.works] == [2048, 3072]
    assert len(list(second.run(Quiet()))) == 2
    assert [entry.width for entry in TuningTable.read(first.path).entries] == [1024, 2048, 3072]
    assert not Tuner(works(), CPU).works and len(Tuner(works(), CPU, again=True).works) == 3


def test_the_kept_configuration_is_the_one_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuner, "TuningTrial", Measured)
    assert tuning.looked_up("norm_tanh_mul_add", 3072, 2, True, CPU).source == "default"
    list(Tuner(works((3072,)), CPU).run(Quiet()))
    assert tuning.looked_up("norm_tanh_mul_add", 3072, 2, True, CPU).source == "yours"


def test_a_table_of_another_place_or_of_none_is_begun_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    path, told = tuning.user_file(tuning.INTERPRETER), list[str]()
    entry = Measured(works((3072,))[0], CPU).run([]).entry
    assert entry is not None
    TuningTable(place=Place(device="Triton's interpreter", triton="0.1"), entries=(entry,)).write(path)
    assert len(Tuner(works((3072,)), CPU, told=told.append).works) == 1
    path.write_text("{")
    assert len(Tuner(works((3072,)), CPU, told=told.append).works) == 1
    assert "another driver, torch or Triton" in told[0] and "this release" in told[1]


def test_time_that_is_over_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuner, "TuningTrial", Measured)
    clock = iter(range(0, 10_000, 40))
    monkeypatch.setattr(tuner.time, "monotonic", lambda: next(clock))
    assert len(list(Tuner(works(), CPU, minutes=2).run(Quiet()))) == 1


class Staged(TuningTrial):
    """A trial with given times: each turn takes the next one."""

    def __init__(self, seconds: dict[Configuration, list[float]], wrong: tuple[Configuration, ...] = ()) -> None:
        self.work, self.device = Work(Situation("rms_norm", 3072, 2, False), *_task_and_row()), torch.device("cuda")
        self.row, self._seconds, self._wrong = self.work.row, seconds, wrong

    def problem(self, configuration: Configuration) -> str | None:
        return "differs" if configuration in self._wrong else None

    def clock(self, configuration: Configuration) -> Callable[[], float]:
        return iter(self._seconds[configuration]).__next__

    def copy_seconds(self) -> float:
        return 1e-6


def _task_and_row() -> tuple[Any, Any]:
    task = find_task("norm_infer")
    return task, task.rows[0]


ALL = trial.ROUNDS + trial.LAST_ROUNDS


@pytest.mark.parametrize(
    ("default", "other", "wrong", "winner"),
    [
        ([10e-6] * ALL, [9e-6] * ALL, (), OTHER),
        ([10e-6] * ALL, [9e-6] * ALL, (OTHER,), DEFAULT),  # faster, but wrong
        ([10e-6] * ALL, [9.85e-6] * ALL, (), DEFAULT),  # faster within the noise
        ([10e-6] * ALL, [9e-6] * trial.ROUNDS + [10e-6] * trial.LAST_ROUNDS, (), DEFAULT),  # faster by luck
        ([10e-6] * ALL, [11e-6] * ALL, (), DEFAULT),
    ],
)
def test_the_default_stays_unless_another_is_right_and_faster_twice(
    default: list[float], other: list[float], wrong: tuple[Configuration, ...], winner: Configuration
) -> None:
    outcome = Staged({DEFAULT: default, OTHER: other}, wrong).run([OTHER])
    assert outcome.entry is not None and outcome.entry.configuration == winner
    assert list(outcome.failed) == list(wrong)


def test_a_wrong_default_is_reported_and_nothing_is_kept() -> None:
    outcome = Staged({OTHER: [9e-6] * ALL}, (DEFAULT,)).run([OTHER])
    assert outcome.entry is None and "the default, 1 x 4096 by 8 warps, failed: differs" in outcome.problem


def test_a_cpu_is_refused_unless_triton_is_interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(KernwrightError, match="Triton's kernels run on a GPU"):
        find_device("cpu")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert find_device("cpu") == CPU


def test_the_command_writes_a_table_that_can_ship(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuner, "TuningTrial", Measured)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    out = tmp_path / "table.json"
    asked = ["tune", "norm_tanh_mul_add", "--device", "cpu", "--widths", "3072", "--out", str(out)]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    assert "norm_tanh_mul_add, 3072 wide" in done.output
    table = TuningTable.read(out)
    assert table.entries[0].width == 3072 and table.place.torch == torch.__version__ and table.date
    for wrong, why in ((["no_such_op"], "there is no op"), (["--widths", "3k"], "is not a width")):
        assert why in str(CliRunner().invoke(app, ["tune", "--device", "cpu", *wrong]).exception)


@pytest.mark.gpu
def test_on_a_gpu_a_configuration_is_measured_and_then_runs(tmp_path: Path) -> None:
    device = find_device("cuda")
    task = find_task("norm_infer")
    outcomes = list(Tuner(works_of([task], "production", ["rms_norm"]), device).run(Quiet()))
    assert outcomes
    for outcome in outcomes:
        assert outcome.entry is not None and not outcome.failed, (outcome.problem, outcome.failed)
        own = outcome.work.situation
        found = tuning.looked_up(own.op, own.width, own.element_bytes, own.is_few, device)
        assert (found.source, found.configuration) == ("yours", outcome.entry.configuration)
