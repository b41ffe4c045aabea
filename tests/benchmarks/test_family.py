"""Benchmarks by hand: one script per family, built on the judge's own code."""

from __future__ import annotations

import ast
import importlib
import runpy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kernwright.baselines.lock import read_lock
from kernwright.campaign.sweep import Sweep
from kernwright.core.errors import KernwrightError
from kernwright.ledger.ledger import Ledger
from kernwright.tasks.baseline import BUILT_IN

ROOT = Path(__file__).parents[2]
OTHERS = (
    "bench_beside.py",
    "bench_campaign_kill.py",
    "bench_checkouts.py",
    "bench_denoise.py",
    "bench_judge.py",
    "bench_judge_gpu.py",
    "bench_mcp.py",
    "bench_ops.py",
    "bench_served.py",
    "bench_start_up.py",
    "bench_swap.py",
    "bench_traces.py",
)  # scripts that do not belong to one family
SCRIPTS = [path for path in (ROOT / "benchmarks").glob("bench_*.py") if path.name not in OTHERS]
ALIASES = {"rmsnorm": "norm_infer"}
BASELINES = """
def copied(op):
    return lambda x: x + x


def picky(op):
    def run(x):
        raise RuntimeError("not this one")
    return run
"""


def words_of(script: Path) -> list[str]:
    """Return the task and the contenders that a script names."""
    calls = [node for node in ast.walk(ast.parse(script.read_text())) if isinstance(node, ast.Call)]
    (call,) = (call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "benchmark")
    return [ast.literal_eval(argument) for argument in call.args]


def test_every_family_has_one_and_names_what_exists() -> None:
    named = {script.stem.removeprefix("bench_"): words_of(script) for script in SCRIPTS}
    tasks = {path.parent.name for path in ROOT.glob("tasks/*/task.toml")}
    assert {name: task for name, (task, *_) in named.items()} == {**{task: task for task in tasks}, **ALIASES}
    known = {*BUILT_IN, *read_lock().names()}
    assert all(contenders and set(contenders) <= known for _, *contenders in named.values())
    for alias, task in ALIASES.items():
        assert named[alias] == named[task]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--rows", "smoke_rms*", "--contender", "sglang@0.5.23"], "remedy: fetch it"),
        (["--metric", "devcie"], "'devcie' is none of wall, stream, device"),
        (["--rows", "smoke,nosuch"], "'nosuch'"),
        (["--minutes", "-1"], "--minutes"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    (tmp_path / "store").mkdir()
    status = status_of("norm_infer", words, tmp_path, monkeypatch)
    err = capfd.readouterr().err
    assert status == 2 and told in err, err
    assert "Traceback" not in err and not (tmp_path / "ledger").exists()


def test_a_contender_that_declines_a_row_gives_a_reason_and_has_not_failed(
    tmp_path: Path, private_tmp: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Neither the package nor a run is needed for this."""
    words = ["--rows", "smoke_ln*", "--contender", "sglang@0.5.23"]
    status = status_of("norm_infer", words, tmp_path, monkeypatch)
    told = capfd.readouterr()
    assert status == 0, told.err
    assert "sglang@0.5.23: declines: its kernel runs on a GPU only (smoke_ln_helios_8640x5120)" in told.out


def status_of(name: str, words: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a script in this process and return its exit status."""
    monkeypatch.setenv("KERNWRIGHT_BASELINES", str(folder / "store"))
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    monkeypatch.setattr("sys.argv", ["bench", *words, "--ledger", str(folder / "ledger")])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / "benchmarks" / f"bench_{name}.py"), run_name="__main__")
    return ended.value.code


@pytest.fixture
def bench(
    tmp_path: Path,
    write_doubling: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Iterator[Callable[[str], tuple[int, str]]]:
    """Run a family of one row with its own contender. Return the exit status and the output."""
    folder = write_doubling(tmp_path / "tiny", 40, baselines=BASELINES)
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    family = importlib.import_module("family")
    monkeypatch.setattr("sys.argv", ["bench", "--ledger", str(tmp_path / "ledger")])

    def call(contender: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            family.benchmark(str(folder), contender)
        return int(str(ended.value.code)), capfd.readouterr().out

    yield call


@pytest.mark.slow
def test_one_runs_and_leaves_its_evidence(
    bench: Callable[[str], tuple[int, str]], tmp_path: Path, private_tmp: Path
) -> None:
    status, shown = bench("copied")
    assert status == 0 and "stream time in us" in shown, "what a CPU has, where nothing else is asked for"
    (line,) = (line for line in shown.splitlines() if "r40" in line)
    assert "%" in line and "x" in line.rpartition("%")[2], line
    records = Ledger(tmp_path / "ledger").all_records()
    assert [r.body["candidate"] for r in records if r.kind == "verdict"] == ["copied"]


def test_a_failed_contender_is_shown_with_its_reason(
    bench: Callable[[str], tuple[int, str]], private_tmp: Path
) -> None:
    status, shown = bench("picky")
    assert status == 1 and "picky: failed: " in shown and "not this one" in shown and "(r40)" in shown, shown


def test_a_row_that_cannot_be_judged_is_told_below_the_table(
    bench: Callable[[str], tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def judged(*_: Any) -> None:
        raise KernwrightError("the machine refused", "another machine")

    monkeypatch.setattr(Sweep, "_judge", judged)
    status, shown = bench("picky")
    assert status == 1 and "picky against eager, r40: the machine refused" in shown, shown
