"""Comparisons of perf dumps: what is called faster, what is called noise, and what is refused."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from diagnose.compare.dumps import dump_of, write, write_label

from kernwright.core.errors import KernwrightError
from kernwright.diagnose.compare.comparison import Comparison, compare_names, percent
from kernwright.diagnose.compare.difference import RunDifference, _of_groups, student_quantile
from kernwright.diagnose.compare.table import lines

Row = Callable[[Comparison, str], RunDifference]


def found(comparison: Comparison, name: str, place: int = 0) -> RunDifference:
    (row,) = (row for row in comparison.rows if row.measure.name == name)
    held = row.differences[place]
    assert held is not None
    return held


def compared(*sides: Path, different: bool = False) -> Comparison:
    return compare_names([str(side) for side in sides], different)


@pytest.mark.parametrize(("degrees", "quantile"), [(1, 12.706), (2, 4.303), (4, 2.776), (30, 2.042), (5000, 1.960)])
def test_quantiles_of_student_agree_with_the_tables(degrees: float, quantile: float) -> None:
    assert student_quantile(degrees) == pytest.approx(quantile, abs=2e-3)


def test_the_interval_of_groups_holds_the_truth_as_often_as_it_says() -> None:
    chance = random.Random(1)

    def holds(before: int, after: int) -> bool:
        groups = [[math.exp(chance.gauss(0, 0.01)) for _ in range(count)] for count in (before, after)]
        _, low, high = _of_groups(*groups)
        return low <= 0 <= high

    for before, after, rounds in ((3, 3, 300), (5, 1, 300)):
        share = sum(holds(before, after) for _ in range(rounds)) / rounds
        assert 0.91 < share <= 1.0


def test_repeated_runs_tell_a_difference_from_noise(tmp_path: Path) -> None:
    base, new = write_label(tmp_path / "base", 1.0, 4, seed=2), write_label(tmp_path / "new", 0.93, 4, seed=1)
    twins = [write_label(tmp_path / f"twin{seed}", 1.0, 4, seed=seed) for seed in (1, 3, 6, 9)]
    comparison = compared(base, new, *twins)
    faster, *same = (found(comparison, "end to end", place) for place in range(5))
    assert (faster.outcome, faster.method) == ("better", "runs")
    assert {each.outcome for each in same} == {"same"}
    assert min(each.change for each in same) < 0 < max(each.change for each in same)
    assert faster.low is not None and faster.high is not None and faster.low < -0.07 < faster.high
    assert comparison.regressions() == []
    back = compared(new, base)
    assert any("end to end" in line for line in back.regressions())
    assert back.regressions(threshold=0.2) == []
    (row,) = (row for row in comparison.rows if row.measure.name == "DecodingStage (2 times)")
    assert row.values[0] == (100.0,) * 4, "a stage that repeats counts with all of its runs"


def test_the_columns_agree_with_the_change(tmp_path: Path) -> None:
    """The medians of these runs fall, and their geometric means rise."""
    times = {"base": [100.0, 102.0, 104.0], "new": [98.0, 99.0, 170.0]}
    for name, totals in times.items():
        for run_number, total in enumerate(totals):
            write(tmp_path / name / f"{run_number}.json", dump_of(total, [total / 2]))
    comparison = compared(tmp_path / "base", tmp_path / "new")
    (line,) = (line for line in lines(comparison) if line[0] == "end to end")
    shown = [float(line[place].removesuffix(" ms")) for place in (1, 3)]
    assert shown == [pytest.approx(math.prod(totals) ** (1 / 3), abs=0.06) for totals in times.values()]
    change = found(comparison, "end to end").change
    assert change > 0.1 and shown[1] / shown[0] - 1 == pytest.approx(change, abs=2e-3)


def test_a_time_that_all_runs_share_is_one_measurement(tmp_path: Path) -> None:
    """Loading is measured once in a process, and its time is in the dumps of all repeats."""
    for name, loading, factor in (("base", 3435.6, 1.0), ("new", 3835.8, 1.1)):
        for path in sorted(write_label(tmp_path / name, factor, 3).iterdir()):
            held = json.loads(path.read_text())
            held["steps"].insert(0, {"name": "LoadingStage", "duration_ms": loading})
            held["memory_checkpoints"]["after"]["peak_reserved_mb"] *= factor
            write(path, held)
    comparison = compared(tmp_path / "base", tmp_path / "new")
    loaded = found(comparison, "LoadingStage")
    assert loaded.change == pytest.approx(3835.8 / 3435.6 - 1)
    assert (loaded.low, loaded.method, loaded.outcome) == (None, None, "undecided")
    (line,) = (line for line in lines(comparison) if line[0] == "LoadingStage")
    assert (line[2], line[5], line[6]) == ("-", "-", "measured once")
    assert found(comparison, "denoise").outcome == "worse", "these are measured in every run"
    assert any("peak memory" in each for each in comparison.regressions()), "the same peak is reached in every run"
    for path in (*(tmp_path / "base").iterdir(), *(tmp_path / "new").iterdir()):
        write(path, json.loads(path.read_text()) | {"total_duration_ms": 1000.0 if path.parent.name == "base" else 2e3})
    again = compared(tmp_path / "base", tmp_path / "new")
    assert found(again, "end to end").change == pytest.approx(1.0)
    assert not any("end to end" in each for each in again.regressions() + again.regressions(threshold=0.1))


def test_runs_that_took_turns_are_compared_pair_by_pair(tmp_path: Path) -> None:
    """The machine becomes 6 % slower with every turn, which hides a difference of 1 % unless turns are paired."""
    shared = {"drift": 0.06, "noise": 0.0005}
    alone = [write_label(tmp_path / f"{n}", f, 6, seed=n, **shared) for n, f in enumerate((1.0, 1.01))]  # type: ignore[arg-type]
    assert found(compared(*alone), "end to end").outcome == "same"
    turns = [
        write_label(tmp_path / f"turn{n}", f, 6, seed=n, series="s", **shared)  # type: ignore[arg-type]
        for n, f in enumerate((1.0, 1.01))
    ]
    paired = found(compared(*turns), "end to end")
    assert (paired.outcome, paired.method) == ("worse", "turns")


def test_one_run_each_has_an_interval_only_from_its_steps(tmp_path: Path) -> None:
    base = write(tmp_path / "a.json", dump_of(1000, [100.0, 101, 99, 100, 102, 100, 99, 101]))
    slow = write(tmp_path / "b.json", dump_of(1010, [103.0, 104, 102, 103, 105, 103, 102, 104]))
    comparison = compared(base, slow)
    assert found(comparison, "end to end").method is None
    step = found(comparison, "denoise step, median")
    assert (step.method, step.outcome) == ("steps", "worse")
    assert any("repeat the runs" in note for note in comparison.notes)
    assert [line for line in comparison.regressions() if "end to end" in line] == [], "1 % may be noise"
    assert any("end to end" in line for line in comparison.regressions(threshold=0.005))


def test_runs_of_other_workloads_are_refused_with_what_differs(tmp_path: Path) -> None:
    base = write(tmp_path / "a.json", dump_of(10, [1.0, 2.0]))
    small = dump_of(10, [1.0, 2.0], workload={"width": 512, "steps": 2}, gpus=["NVIDIA H100"])
    with pytest.raises(KernwrightError, match=r"(?s)gpus: NVIDIA H200 \(a\); NVIDIA H100 \(b\).*width: 1024 .*512"):
        compared(base, other := write(tmp_path / "b.json", small))
    flagged = compared(base, other, different=True)
    assert any("width" in note for note in flagged.notes)


def test_a_dump_of_sglang_is_compared_with_ours_under_a_note(tmp_path: Path) -> None:
    theirs = {"total_duration_ms": 9.0, "denoise_steps_ms": [1.0], "meta": {"model": "m"}}
    base, new = write(tmp_path / "a.json", dump_of(10, [1.0])), write(tmp_path / "b.json", theirs)
    assert any("check that the runs computed the same" in note for note in compared(base, new).notes)
    theirs["denoise_steps_ms"] = [1.0, 1.0]
    with pytest.raises(KernwrightError, match=r"steps: 1 \(a\); 2 \(b\)"):
        compared(base, write(new, theirs))


def test_settings_and_doubts_are_noted(tmp_path: Path) -> None:
    base = write(tmp_path / "a.json", dump_of(10, [1.0], settings={"compile": "off"}, synchronised=False))
    new = write(tmp_path / "b.json", dump_of(10, [1.0], settings={"compile": "regional"}, gradients=True))
    notes = "\n".join(compared(base, new).notes)
    assert "compile: a off, b regional" in notes
    assert "a: stages were not synchronised" in notes and "b: autograd" in notes


@pytest.mark.parametrize("marks", [{"profiled": True}, {"command": "sglang generate --profile --x"}])
def test_a_profiled_run_is_refused(tmp_path: Path, marks: dict[str, object]) -> None:
    base, new = dump_of(10, [1.0]), dump_of(9, [1.0], **marks)
    with pytest.raises(KernwrightError, match=r"b\.json: is the dump of a profiled run"):
        compared(write(tmp_path / "a.json", base), write(tmp_path / "b.json", new))


def test_older_and_newer_dumps_of_sglang(tmp_path: Path) -> None:
    older = {
        "total_duration_ms": 500.0,
        "steps": [{"name": f"denoising_step_{n}", "duration_ms": 100.0} for n in range(4)]
        + [{"name": "DecodingStage", "duration_ms": 90.0}],
        "commit_hash": "aaa",
    }
    newer = {
        "total_duration_ms": 400.0,
        "steps": [{"name": "DenoisingStage", "duration_ms": 300.0}, {"name": "DecodingStage", "duration_ms": 90.0}],
        "denoise_steps_ms": [{"step": n, "duration_ms": 75.0} for n in range(4)],
        "memory_checkpoints": {"after_forward": {"peak_reserved_mb": 5.0, "peak_host_anon_mb": 3.0}},
        "commit_hash": "bbb",
    }
    comparison = compared(write(tmp_path / "a.json", older), write(tmp_path / "b.json", newer))
    assert found(comparison, "denoise").change == pytest.approx(-0.25)
    assert "peak memory of the host" in [row.measure.name for row in comparison.rows]
    notes = "\n".join(comparison.notes)
    assert "commit: a aaa, b bbb" in notes and "does not say whether stages were synchronised" in notes


def run(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kernwright.cli.main", "compare", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_the_command(tmp_path: Path) -> None:
    base, new = write_label(tmp_path / "base", 1.0, 3), write_label(tmp_path / "new", 0.9, 3, seed=1)
    plain = run(base, new)
    assert plain.returncode == 0 and "end to end" in plain.stdout and "faster" in plain.stdout
    markdown = run(base, new, "--markdown").stdout.splitlines()
    assert markdown[0].count("|") == markdown[1].count("|") == markdown[2].count("|") == 8
    gated = run(new, base, "--gate", "--json")
    assert gated.returncode == 1 and "regression: base: end to end" in gated.stderr
    held = json.loads(gated.stdout)
    assert held["sides"][1]["runs"] == 3 and held["regressions"]
    assert run(base, new, "--gate").returncode == 0
    broken = [tmp_path / "half.json", tmp_path / "empty.json"]
    broken[0].write_text('{"total_duration_ms": 1')
    broken[1].write_text("")
    refused = run(*broken)
    assert refused.returncode == 2 and "2 problems" in refused.stderr and "Traceback" not in refused.stderr


def test_a_change_is_written_so_that_it_can_be_read() -> None:
    assert [percent(each) for each in (0.123, -0.5, 4999.0)] == ["+12.3 %", "-50.0 %", "x5000"]
