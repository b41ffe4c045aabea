"""A sweep judges the rows that are left, repeats none, and a row that cannot be judged affects no other row."""

from __future__ import annotations

import itertools
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from kernwright.baselines.shipped import Shipped
from kernwright.campaign.sweep import FIRST_ROWS, Leg, Pace, Sweep, legs_of
from kernwright.cli.main import app
from kernwright.core.errors import KernwrightError
from kernwright.judge.device.cpu import CpuDevice
from kernwright.judge.device.problems import refuse_rows_too_large
from kernwright.judge.record.recompute import recompute
from kernwright.ledger.ledger import Ledger
from kernwright.ledger.verify import verify
from kernwright.tasks.catalog import find_task
from kernwright.tasks.task import Task, load_task

BASELINES = """
import torch

def copied(op):
    return lambda x: x + x

def doubled(op):
    return lambda x: 2 * x

def picky(op):
    def run(x):
        if x.shape[-1] == 40:
            raise RuntimeError("not this one")
        return x + x
    return run
"""


@pytest.fixture
def task(tmp_path: Path, write_doubling: Callable[..., Path]) -> Task:
    folder = write_doubling(tmp_path / "tiny", 32, 40, 48, baselines=BASELINES)
    return load_task(folder)


@pytest.fixture
def sweep(task: Task, tmp_path: Path, private_tmp: Path) -> Callable[..., Sweep]:
    def make(*contenders: str, **more: Any) -> Sweep:
        legs = list(legs_of([task], "eager", contenders))
        fields = {"rows": "smoke", "device": "cpu", "ledger": tmp_path / "ledger", "wait_s": 60.0} | more
        return Sweep(legs=legs, **fields)

    return make


def ids(work: Sweep) -> list[list[str]]:
    return [[row.id for row in work.outstanding(leg)] for leg in work.legs]


def test_a_judged_row_is_not_judged_again_until_its_task_changes(
    sweep: Callable[..., Sweep], quiet: Any, task: Task, tmp_path: Path
) -> None:
    first = sweep("eager")
    assert ids(first) == [["r32", "r40", "r48"]]
    (verdict,) = first.run(quiet)
    assert verdict.baseline == verdict.candidate == "eager"
    assert {row.id for row in verdict.rows} == {"r32", "r40", "r48"}
    again = sweep("eager", "copied")
    assert ids(again) == [[], ["r32", "r40", "r48"]]
    (other,) = again.run(quiet)
    assert (other.candidate, other.baseline) == ("copied", "eager")
    assert all(row.verdict not in ("incorrect", "failed", "tampered") for row in other.rows), other.rows
    assert len([r for r in Ledger(tmp_path / "ledger").all_records() if r.kind == "verdict"]) == 2
    assert list(sweep("eager", "copied").run(quiet)) == []
    file = task.folder / "task.toml"
    file.write_text(file.read_text().replace("block_ms = 1.0", "block_ms = 1.1"))
    changed = load_task(task.folder)
    again.legs = [Leg(changed, leg.baseline, leg.contender) for leg in again.legs]
    assert ids(again) == [["r32", "r40", "r48"]] * 2


def test_a_verdict_over_one_shipped_op_counts(
    quiet: Any, tmp_path: Path, private_tmp: Path, write_task: Callable[..., Path], make_row: Any, task_texts: Any
) -> None:
    """A judgement knows only the ops of its rows, and records their digest."""
    x, modulation = ({"shape": shape, "dtype": "bf16"} for shape in ([1, "S", "D"], [1, "D"]))
    given, sizes = {"x": x, "scale": modulation, "shift": modulation}, {"axes": {"S": 3, "D": 64}}
    added = {"residual": x, **given}
    rows = [
        make_row("plain", "norm_scale_shift", given, {"y": x}, **sizes),
        make_row("residual", "residual_norm_scale_shift", added, {"y": x, "res_out": x}, **sizes),
    ]
    toml = task_texts["toml"].replace('definitions = "definitions.py"\n', "")
    task = load_task(write_task(tmp_path / "ours", toml=toml, rows=rows))
    (leg,) = legs_of([task], "eager", ["kernwright"], "cpu")
    ops = {row.id: row.op for row in task.rows}
    assert isinstance(leg.contender, Shipped) and {*ops.values()} == {*leg.contender.ops}

    def over(rows: str) -> Sweep:
        return Sweep(legs=[leg], rows=rows, device="cpu", ledger=tmp_path / "ledger", wait_s=60.0)

    (verdict,) = over("plain").run(quiet)
    assert verdict.candidate_digest == Shipped((ops["plain"],)).digest != leg.contender.digest
    assert ids(over("smoke")) == [["residual"]]
    other = verdict.model_copy(update={"candidate_digest": Shipped((ops["residual"],)).digest})
    assert leg.holds(verdict) and not leg.holds(other)


def test_a_verdict_over_rows_of_two_families_counts_for_both() -> None:
    """A judgement of a whole task by hand gives such a verdict."""
    task = find_task("fuse_scale_shift")
    legs = list(legs_of([task], "eager", ["kernwright"], "cpu"))
    shipped = Shipped.of(task)
    assert len(legs) == 2 and all(leg.contender != shipped for leg in legs)
    rows = [SimpleNamespace(op=op) for op in shipped.ops]
    verdict: Any = SimpleNamespace(
        task_digest=task.digest, baseline_digest=legs[0].baseline.digest, candidate_digest=shipped.digest, rows=rows
    )
    assert all(leg.holds(verdict) for leg in legs)
    verdict.rows = rows[:1]
    assert not any(leg.holds(verdict) for leg in legs)


def test_time_that_is_up_leaves_the_rest_for_the_next_sweep(
    sweep: Callable[..., Sweep], quiet: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock jumps 40 seconds at every reading: after one slice of two rows, no other fits into a minute."""
    monkeypatch.setattr("kernwright.campaign.sweep.MOST_ROWS", 2)
    ticks = itertools.count(0, 40)
    asked: list[tuple[list[str], list[str]]] = []

    def judged(self: Sweep, legs: list[Leg], rows: list[Any], progress: Any) -> list[str]:
        asked.append(([leg.contender.name for leg in legs], [row.id for row in rows]))
        return ["judged"] * len(legs)

    monkeypatch.setattr(Sweep, "_judge", judged)
    work = sweep("eager", "copied", minutes=1.0, clock=lambda: float(next(ticks)))
    assert list(work.run(quiet)) == ["judged"] * 2
    assert asked == [(["eager", "copied"], ["r32", "r40"])]


def test_rows_that_are_not_timed_come_in_larger_slices(
    sweep: Callable[..., Sweep], task: Task, quiet: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernwright.campaign.sweep.MOST_ROWS", 2)
    asked: list[int] = []
    monkeypatch.setattr(Sweep, "_judge", lambda self, legs, rows, progress: asked.append(len(rows)) or ["judged"])
    list(sweep("eager").run(quiet))
    assert asked == [2, 1]
    asked.clear()
    of_a_grid = [row.model_copy(update={"set": "grid"}) for row in task.rows]
    monkeypatch.setattr(Sweep, "outstanding", lambda self, leg: of_a_grid)
    list(sweep("eager").run(quiet))
    assert asked == [3]


def test_legs_that_wait_for_the_same_rows_are_judged_together(
    sweep: Callable[..., Sweep], task: Task, quiet: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Legs without a verdict in this common judgement are tried again one by one."""
    asked: list[tuple[list[str], list[str]]] = []

    def judged(self: Sweep, legs: list[Leg], rows: list[Any], progress: Any) -> list[str | None]:
        asked.append(([leg.contender.name for leg in legs], [row.id for row in rows]))
        return [None if len(legs) > 1 and leg.contender.name == "picky" else leg.contender.name for leg in legs]

    list(sweep("eager", rows="r32").run(quiet))
    monkeypatch.setattr(Sweep, "_judge", judged)
    work = sweep("eager", "copied", "picky", "copied")
    assert list(work.run(quiet)) == ["eager", "copied", "picky", "copied", "picky"]
    assert asked == [
        (["eager", "copied", "picky"], ["r40", "r48"]), (["picky"], ["r40", "r48"]),
        (["copied", "picky"], ["r32"]), (["picky"], ["r32"]),
    ]  # fmt: skip
    shipped = [Leg(task, leg.baseline, Shipped(("norm",))) for leg in work.legs[:1]]
    assert not shipped[0].may_join(work.legs[0]), "nobody else is timed beside what is not trusted"
    assert shipped[0].may_join(Leg(task, work.legs[1].contender, Shipped(("norm",))))  # type: ignore[arg-type]


def test_legs_of_two_tasks_are_not_judged_together(
    sweep: Callable[..., Sweep], tmp_path: Path, write_doubling: Callable[..., Path], quiet: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The rows of the two tasks have the same names."""
    asked: list[list[Leg]] = []
    monkeypatch.setattr(Sweep, "_judge", lambda self, legs, rows, progress: asked.append(list(legs)) or legs)
    work = sweep("copied")
    other = load_task(write_doubling(tmp_path / "other", 32, 48, baselines=BASELINES))
    work.legs = [*work.legs, *legs_of([other], "eager", ["copied"])]
    assert list(work.run(quiet)) == work.legs
    assert asked == [[leg] for leg in work.legs]


def test_rows_that_are_too_large_for_many_sides_are_judged_leg_by_leg_and_no_others(
    sweep: Callable[..., Sweep], task: Task, quiet: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The judge itself refuses: its device has room for three sides of r48, and for more sides of smaller rows."""
    asked: list[tuple[int, list[str]]] = []

    def judged(requests: list[Any], progress: Any) -> list[Any]:
        device, rows = CpuDevice(), task.select(requests[0].rows)
        device.make_room_for(len(requests) + 2)
        monkeypatch.setattr(device, "bytes_to_judge", lambda row: row.bytes_min * device._sides)
        monkeypatch.setattr(device, "free_bytes", lambda: 3 * rows_by_id["r48"].bytes_min)
        refuse_rows_too_large(rows, device)
        asked.append((len(requests), [row.id for row in rows]))
        return [SimpleNamespace(interrupted=False) for _ in requests]

    rows_by_id = {row.id: row for row in task.select("smoke")}
    monkeypatch.setattr("kernwright.campaign.sweep.judge_together", judged)
    list(sweep("eager", "copied").run(quiet))
    assert asked == [(2, ["r32"]), (1, ["r40", "r48"]), (1, ["r40", "r48"])]


def test_a_row_that_cannot_be_judged_costs_no_other(sweep: Callable[..., Sweep], quiet: Any, task: Task) -> None:
    """A baseline of the task that crashes ends the judgement, but not the sweep."""
    legs = list(legs_of([task], "picky", ["eager"]))
    work = sweep("eager")
    work.legs = legs
    judged = {row.id for verdict in work.run(quiet) for row in verdict.rows}
    assert judged == {"r32", "r48"}
    assert list(work.troubles) == [(legs[0].label, "r40")]
    assert "not this one" in work.troubles[legs[0].label, "r40"]


@pytest.mark.parametrize(("now", "tried"), [(0.0, [8, 4, 2, 1, 1, 2, 4]), (60.0, [8])])
def test_a_slice_is_halved_until_the_row_is_found_or_time_is_up(
    sweep: Callable[..., Sweep], quiet: Any, task: Task, monkeypatch: pytest.MonkeyPatch, now: float, tried: list[int]
) -> None:
    good, bad, _ = task.select("smoke")
    sizes: list[int] = []

    def judged(self: Sweep, legs: list[Leg], rows: list[Any], progress: Any) -> list[str]:
        sizes.append(len(rows))
        if bad in rows:
            raise KernwrightError("not this one", "none")
        return ["judged"]

    monkeypatch.setattr(Sweep, "_judge", judged)
    work = sweep("eager", clock=lambda: now)
    found = list(work._judged(work.legs[:1], [bad, *[good] * 7], quiet, 60.0))
    assert sizes == tried
    assert (len(found), [row for _, row in work.troubles]) == ((3, [bad.id]) if now == 0.0 else (0, []))


def test_the_command_says_what_is_left(task: Task, tmp_path: Path, private_tmp: Path) -> None:
    words = ["sweep", str(task.folder), "--contender", "copied", "--ledger", str(tmp_path / "ledger")]
    words += ["--baseline", "eager", "--baseline", "doubled"]
    result = CliRunner().invoke(app, [*words, "--minutes", "0.0000001"])
    assert result.exit_code == 1 and result.output.count("0 of 3") == 2
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0 and result.output.count("3 of 3") == 2
    verdicts = [r.body for r in Ledger(tmp_path / "ledger").all_records() if r.kind == "verdict"]
    assert [(v["baseline"], v["candidate"]) for v in verdicts] == [("eager", "copied"), ("doubled", "copied")]
    assert [v["provenance"]["together"][0]["baseline"] for v in verdicts] == ["doubled", "eager"]


def test_a_row_is_given_as_many_rounds_as_the_sweep_says(
    sweep: Callable[..., Sweep], task: Task, quiet: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[int | None]] = []

    def judged(requests: list[Any], progress: Any) -> list[Any]:
        asked.append([request.rounds for request in requests])
        return [SimpleNamespace(interrupted=False) for _ in requests]

    monkeypatch.setattr("kernwright.campaign.sweep.judge_together", judged)
    list(sweep("eager", "copied", rounds=3).run(quiet))
    list(sweep("eager").run(quiet))
    assert asked == [[3, 3], [None]]
    given: list[int | None] = []
    monkeypatch.setattr(Sweep, "run", lambda self, _: given.append(self.rounds) or ())  # type: ignore[func-returns-value]
    words = ["sweep", str(task.folder), "--contender", "copied", "--ledger", str(tmp_path / "ledger")]
    CliRunner().invoke(app, [*words, "--rounds", "4"])
    CliRunner().invoke(app, words)
    assert given == [4, None]


def test_the_start_of_a_judgement_does_not_slow_the_pace_for_good() -> None:
    """Most of the minute for the first three rows was the start. At that pace two minutes suffice for six rows. Forty
    more rows, at one second per side, show that several times as many fit."""
    pace = Pace()
    assert pace.rows_in(1000.0, 3) == FIRST_ROWS
    pace.note(60.0, 9)
    assert pace.rows_in(60.0, 3) == pytest.approx(3.0)
    pace.note(120.0, 120)
    assert 24 < pace.rows_in(120.0, 3) < 40
    pace.note(30.0, 3)
    assert pace.rows_in(120.0, 3) == pytest.approx(4.0), "a slower family: what is known of it counts"


def test_a_sweep_covers_only_tasks_with_such_rows(
    task: Task, tmp_path: Path, write_doubling: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_doubling(tmp_path / "other", 16, prefix="s", toml=(task.folder / "task.toml").read_text())
    found = {"tiny": task.folder, "other": folder}
    monkeypatch.setattr("kernwright.tasks.catalog.list_tasks", lambda: found)

    def swept(*words: str) -> Any:
        asked = ["sweep", *words, "--minutes", "0.0000001", "--ledger", str(tmp_path / "ledger")]
        return CliRunner().invoke(app, asked)

    assert [n for n in (1, 2, 3) if f"0 of {n}" in swept("--rows", "r4*").output] == [2]
    both = swept("--rows", "r32,s*").output
    assert both.count("0 of 1") == 2, both
    for words, told in (
        (["--rows", "r4*,nosuch"], "no rows of any task match 'nosuch'"),
        (["--rows", "grid"], "no rows of any task match 'grid'"),
        ([str(task.folder), str(folder), "--rows", "r4*"], "match 'r4*'"),
        ([str(task.folder), "--rows", "r32,nosuch"], "match 'nosuch'"),
    ):
        refused = swept(*words)
        assert isinstance(refused.exception, KernwrightError) and told in refused.exception.cause, words
        assert refused.exception.remedy


@pytest.mark.parametrize("minutes", ["-1", "nan"])
def test_an_invalid_time_is_refused(task: Task, tmp_path: Path, minutes: str) -> None:
    words = ["sweep", str(task.folder), "--ledger", str(tmp_path / "ledger"), "--minutes", minutes]
    refused = CliRunner().invoke(app, words)
    assert isinstance(refused.exception, KernwrightError) and "--minutes" in str(refused.exception)


class Impatient:
    """Progress that raises KeyboardInterrupt when a number of rows of a phase are done. `before` runs first."""

    def __init__(self, phase: str, rows: int, before: Callable[[], object] = lambda: None) -> None:
        self.awaited, self.rows, self.before = phase, rows, before

    def phase(self, what: str, steps: int) -> None:
        self.left = self.rows if what.startswith(self.awaited) else 0

    def step(self, note: str) -> None:
        self.left -= 1
        if self.left == 0:
            self.before()
            os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture
def two_rounds(sweep: Callable[..., Sweep], task: Task) -> Callable[[], Sweep]:
    """Return a sweep that gives every row two rounds and then looks at it."""
    file = task.folder / "task.toml"
    file.write_text(file.read_text().replace("first_look = 1\nmax_rounds = 1", "first_look = 2\nmax_rounds = 3"))
    changed = load_task(task.folder)
    assert (changed.policy.first_look, changed.policy.max_rounds) == (2, 3)

    def make() -> Sweep:
        work = sweep("copied", rounds=2)
        work.legs = list(legs_of([changed], "eager", ["copied"]))
        return work

    return make


def interrupted(work: Sweep, progress: Impatient) -> dict[str, Any]:
    """Return the verdict that an interrupted sweep leaves."""
    with pytest.raises(KeyboardInterrupt):
        list(work.run(progress))
    (verdict,) = (record.body for record in Ledger(work.ledger).all_records() if record.kind == "verdict")
    assert verdict["interrupted"]
    again = recompute(Ledger(work.ledger))
    assert (again.differences, again.underivable) == ([], {}), "its samples are there, of the unfinished round too"
    return verdict


def test_rows_that_were_finished_stand_when_a_sweep_is_interrupted(
    two_rounds: Callable[[], Sweep], quiet: Any, tmp_path: Path
) -> None:
    """Two of three rows had their second round."""
    verdict = interrupted(two_rounds(), Impatient("timing, round 2", 2))
    assert [row["id"] for row in verdict["rows"]] == ["r32", "r40"] and verdict["evidence"]
    assert all(row["metrics"]["stream"]["quads"] == 14 and row["cases"] for row in verdict["rows"])
    assert verdict["headline"]["stream"]["rows"] == 2 and "2 of 3 rows were finished" in verdict["reasons"][0]
    assert ids(two_rounds()) == [["r48"]]
    (rest,) = two_rounds().run(quiet)
    assert [row.id for row in rest.rows] == ["r48"] and not rest.interrupted
    assert verify(tmp_path / "ledger") == []


@pytest.mark.parametrize(("phase", "rows"), [("correctness", 2), ("timing, round 1", 2)])
def test_rows_that_were_not_finished_do_not_count(two_rounds: Callable[[], Sweep], phase: str, rows: int) -> None:
    verdict = interrupted(two_rounds(), Impatient(phase, rows))
    assert not verdict["evidence"] and "before any row was finished" in verdict["reasons"][0]
    assert ids(two_rounds()) == [["r32", "r40", "r48"]]


def test_changed_files_are_detected_after_an_interrupt_too(two_rounds: Callable[[], Sweep], task: Task) -> None:
    changed = task.folder / "definitions.py"
    verdict = interrupted(
        two_rounds(), Impatient("timing, round 2", 1, lambda: changed.write_text(changed.read_text() + "# changed"))
    )
    assert [(row["id"], row["verdict"]) for row in verdict["rows"]] == [("r32", "tampered")]


def test_rows_of_a_grid_are_finished_when_they_were_examined(
    sweep: Callable[..., Sweep], task: Task, make_row: Any
) -> None:
    rows = [
        make_row(f"g{n}", "twice", {"x": ["S", "D"]}, {"y": ["S", "D"]}, axes={"S": 8, "D": n}, set="grid")
        for n in (1, 2, 3)
    ]
    lines = (task.folder / "workloads.jsonl").read_text() + "".join(json.dumps(row) + "\n" for row in rows)
    (task.folder / "workloads.jsonl").write_text(lines)
    legs = list(legs_of([load_task(task.folder)], "eager", ["copied"]))
    work = sweep("copied", rows="grid")
    work.legs = legs
    verdict = interrupted(work, Impatient("correctness", 2))
    assert [row["id"] for row in verdict["rows"]] == ["g1", "g2"] and verdict["evidence"]
    assert ids(work) == [["g3"]]
