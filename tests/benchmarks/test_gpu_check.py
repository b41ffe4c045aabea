"""The procedure of the GPU check, without a GPU: steps, deadlines, and an archive in every case."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.testing import CliRunner

from kernwright.cli.main import app

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "gpu_check.py"

GOOD_TESTS = """
import pytest
@pytest.mark.gpu
def test_one(): ...
@pytest.mark.gpu
@pytest.mark.alone
def test_timed(): ...
@pytest.mark.gpu
@pytest.mark.skip(reason="needs two GPUs")
def test_two(): ...
def test_that_needs_no_gpu(): assert False
"""
BAD_TESTS = "import pytest\n@pytest.mark.gpu\ndef test_wrong(): assert 1 == 2\n"
SLOW_TESTS = """
import pathlib, subprocess, time, pytest
@pytest.mark.gpu
def test_quick(): ...
@pytest.mark.gpu
def test_endless():
    child = subprocess.Popen(["sleep", "1000"])
    pathlib.Path({pid!r}).write_text(str(child.pid))
    time.sleep(1000)
"""
# Two ledgers and their figures, as a benchmark with two parts leaves them.
BENCHMARK = """
import json, pathlib, sys
from kernwright.ledger.ledger import Ledger
assert sys.argv[1:3] == ["short", "--out"]
out = pathlib.Path(sys.argv[3])
for part in ("aa", "rows"):
    ledger = Ledger(out / part)
    with ledger.open_run({"part": part}) as run:
        run.append("sample", {"raw": "blob:" + ledger.write_blob(part.encode())})
(out / "figures.json").write_text('{"A/A": {"figures": {"share": 0.25, "odd": NaN}}}')
"""


@pytest.fixture(scope="module", autouse=True)
def scripts() -> Iterator[None]:
    """Let scripts import each other, as scripts of one folder do. The pytest that they run imports no plugins."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SCRIPT.parent))
        patch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        yield


@pytest.fixture
def quick_probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the probe of the machine a torch that has no device and takes no seconds to import."""
    (tmp_path / "quick").mkdir()
    (tmp_path / "quick" / "torch.py").write_text("class cuda:\n    is_available = bool\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "quick"))


def script(name: str) -> ModuleType:
    return importlib.import_module(f"gpu_{name}")


def run(tmp_path: Path, tests: str, benchmark: str | None = None, *words: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "test_it.py").write_text(tests)
    if benchmark is not None:
        (tmp_path / "bench.py").write_text(benchmark)
    command = [
        sys.executable, SCRIPT, "--allow-cpu", "--out", tmp_path / "out", "--tests", tmp_path / "test_it.py",
        "--benchmark", tmp_path / "bench.py", "--bundle", tmp_path / "none", "--processes", "1", *words,
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)


def kernwright(*words: object) -> str:
    """Return what the command line prints."""
    done = CliRunner().invoke(app, list(map(str, words)))
    assert done.exit_code == 0, done.output
    return str(done.stdout)


def imported(tmp_path: Path) -> list[dict[str, object]]:
    """Import the archive with the command line, verify it, and return its records."""
    ledger = tmp_path / "home"
    kernwright("ledger", "import", tmp_path / "out" / "evidence.tar.gz", "--ledger", ledger)
    assert "sound" in kernwright("ledger", "verify", "--ledger", ledger)
    runs = [json.loads(line)["run"] for line in kernwright("ledger", "show", "--json", "--ledger", ledger).splitlines()]
    shown = [kernwright("ledger", "show", name, "--json", "--ledger", ledger) for name in runs]
    return [json.loads(line) for text in shown for line in text.splitlines()]


def test_only_files_with_gpu_tests_are_collected(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    with_gpu, without = tmp_path / "deep" / "test_gpu.py", tmp_path / "test_cpu.py"
    with_gpu.write_text(GOOD_TESTS)
    without.write_text("def test_it(): ...")
    files = partial(script("steps").files_with, "mark.gpu")
    assert files(tmp_path) == [with_gpu]
    assert files(without) == [without], "nothing to leave out: pytest is to say that there is none"


def test_everything_comes_back_in_one_archive(tmp_path: Path) -> None:
    done = run(tmp_path, GOOD_TESTS, BENCHMARK)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed, 0 failed, 1 skipped" in done.stdout and "A/A: share: 0.25" in done.stdout
    records = imported(tmp_path)
    assert {record["body"].get("part") for record in records if record["kind"] == "run"} == {"aa", "rows", None}
    (summary,) = (record["body"] for record in records if record["kind"] == "gpu_check")
    assert summary["tests"]["skip reasons"] == {"needs two GPUs": 1}
    assert [step["status"] for step in summary["steps"]] == ["passed", "passed", "passed"]
    assert summary["libraries"]["torch"] and summary["sources"] and summary["device"] is None
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["tests"] == summary["tests"]
    assert {name.partition("::")[2] for _, name in summary["tests"]["slowest"]} == {
        "test_one",
        "test_timed",
        "test_two",
    }
    assert "test_timed" in (tmp_path / "out" / "tests.xml").read_text()
    # Few files with plain names, so that they can be fetched from a machine that hands out only a few.
    names = [path.name for path in (tmp_path / "out").rglob("*")]
    assert len(names) <= 8 and not any(" " in name for name in names)


@pytest.mark.usefixtures("quick_probe")
def test_a_failed_step_fails_the_check_but_not_the_archive(tmp_path: Path) -> None:
    done = run(tmp_path, BAD_TESTS, BENCHMARK + "\nsys.exit(3)\n")
    assert done.returncode == 1
    assert "assert 1 == 2" in done.stdout, "the end of the log is shown"
    records = imported(tmp_path)
    (summary,) = (record["body"] for record in records if record["kind"] == "gpu_check")
    assert summary["tests"]["failed"] == 1 and "test_wrong" in summary["tests"]["failures"][0]
    assert [step["status"] for step in summary["steps"]] == ["failed", "passed", "failed"]
    assert len([record for record in records if record["kind"] == "sample"]) == 2


@pytest.mark.parametrize(
    ("statuses", "problems", "expected"),
    [
        (["passed", "absent"], [], 0),
        (["failed", "passed"], [], 1),
        (["passed", "failed"], [], 1),
        (["passed", "overran"], [], 1),
        (["passed", "passed"], ["a damaged ledger"], 1),
    ],
)
def test_the_exit_status_is_0_only_where_all_went_well(
    tmp_path: Path, statuses: list[str], problems: list[str], expected: int
) -> None:
    outcomes = [script("steps").Outcome(str(number), status) for number, status in enumerate(statuses)]
    summary = {"device": None, "seconds": 1.0, "tests": {}, "figures": {}}
    assert script("check").report(tmp_path, summary, outcomes, problems) == expected


CONVICTED_TESTS = """
import pytest
@pytest.mark.gpu
@pytest.mark.alone
@pytest.mark.convicted
def test_attack(): ...
@pytest.mark.gpu
@pytest.mark.alone
def test_timed(): ...
@pytest.mark.gpu
def test_one(): ...
"""


def test_libraries_that_are_missing_are_built_before_the_tests_and_attacks_beside_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[tuple[str, list[list[str]]]] = []

    def run_step(name: str, commands: list[list[str]], envs: list[Any], log: Path, seconds: float) -> object:
        assert len(envs) == len(commands)
        steps.append((name, commands))
        return script("steps").Outcome(name, "passed")

    monkeypatch.setattr(script("steps"), "run_step", run_step)
    found = {"kernels": {"all": 5, "built": 4}, "device": {"capability": [9, 0]}}
    build = script("check").build_missing(found)
    assert "sm_90" in build
    (tmp_path / "test_it.py").write_text(CONVICTED_TESTS)
    script("steps").run_tests(tmp_path / "test_it.py", {}, tmp_path, 60.0, 2, build)
    asked = [(name, [own if own is build else own[own.index("-m", 2) + 1] for own in given]) for name, given in steps]
    assert asked == [
        ("builds", [build, "gpu and convicted"]),
        ("tests", ["gpu and not alone"] * 2),
        ("judged-tests", ["gpu and alone and not convicted"]),
    ]
    for kernels in ({"all": 5, "built": 5}, None):
        assert script("check").build_missing({"kernels": kernels, "device": None}) is None


def test_libraries_that_cannot_be_listed_fail_the_check() -> None:
    kernels = {"all": 0, "built": 0, "unknown": "no such file: flat.h"}
    (outcome,) = script("check").refuse_unknown(kernels)
    assert not outcome.good and "flat.h" in outcome.detail
    assert script("check").refuse_unknown({"all": 1, "built": 1}) == script("check").refuse_unknown(None) == []


@pytest.mark.parametrize(
    "tests",
    ["def test_other(): ...", GOOD_TESTS.replace("def test_one", "def one").replace("def test_timed", "def timed")],
)
def test_a_run_without_tests_does_not_pass(tmp_path: Path, tests: str) -> None:
    (tmp_path / "test_it.py").write_text(tests)
    (outcome, _), counts = script("steps").run_tests(tmp_path / "test_it.py", dict(os.environ), tmp_path, 120.0)
    assert (outcome.status, outcome.detail, counts["passed"]) == ("failed", "no test ran", 0)
    assert not outcome.good


def test_a_step_that_overruns_is_ended_with_its_processes_and_its_results_count(tmp_path: Path) -> None:
    pid, tests = tmp_path / "pid", tmp_path / "test_it.py"
    run_tests = script("steps").run_tests
    tests.write_text(SLOW_TESTS.format(pid=str(pid)).partition("@pytest.mark.gpu\ndef test_endless")[0])
    # Shows how long the process takes to get that far.
    (alike, _), _ = run_tests(tests, dict(os.environ), tmp_path, 200.0)
    tests.write_text(SLOW_TESTS.format(pid=str(pid)))
    (outcome, _), counts = run_tests(tests, dict(os.environ), tmp_path, 10.0 + 4 * alike.seconds)
    assert outcome.status == "overran" and not outcome.good
    assert (counts["passed"], counts["failed"]) == (1, 0)
    assert not _alive(int(pid.read_text()))


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_process_that_ignores_the_request_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script("steps"), "GRACE_S", 0.2)
    # The process ignores the signal from its first instruction on. Otherwise the request could come too early.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        outcome = script("steps").run_step("stubborn", [["sleep", "1000"]], [dict(os.environ)], tmp_path / "log", 1.0)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert (outcome.status, outcome.exit_status) == ("overran", -signal.SIGKILL)


def test_a_damaged_ledger_is_left_out_and_reported(tmp_path: Path) -> None:
    from kernwright.ledger.ledger import Ledger

    for name in ("good", "bad"):
        with Ledger(tmp_path / "work" / name).open_run({"part": name}):
            pass
    (path,) = (tmp_path / "work" / "bad" / "runs").iterdir()
    path.write_text(path.read_text().replace("bad", "BAD"))
    summary = {"device": None, "libraries": {}}
    (problem,) = script("check").gather(tmp_path / "work", summary, tmp_path / "evidence.tar.gz")
    assert problem.startswith("bad: ")
    (tmp_path / "out").mkdir()
    (tmp_path / "evidence.tar.gz").rename(tmp_path / "out" / "evidence.tar.gz")
    assert {record["body"].get("part") for record in imported(tmp_path)} == {"good", None}


@pytest.mark.usefixtures("quick_probe")
def test_ctrl_c_still_leaves_the_archive(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    (tmp_path / "test_it.py").write_text(SLOW_TESTS.format(pid=str(pid)))
    command = [
        sys.executable, SCRIPT, "--allow-cpu", "--out", tmp_path / "out", "--tests", tmp_path / "test_it.py",
        "--bundle", tmp_path / "none",
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    while not pid.exists() and process.poll() is None:
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 1
    assert any(record["kind"] == "gpu_check" for record in imported(tmp_path))


def test_without_a_device_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script("machine"), "PROBE", 'print(\'{"missing": [], "device": null}\')')
    with pytest.raises(script("machine").CannotRun, match="no CUDA device"):
        script("machine").look_around(dict(os.environ), 60.0, False)
    monkeypatch.setattr(script("machine"), "PROBE", 'print(\'{"missing": ["pydantic"], "device": null}\')')
    with pytest.raises(script("machine").CannotRun, match="lacks pydantic"):
        script("machine").look_around(dict(os.environ), 60.0, True)
    monkeypatch.setattr(script("machine"), "PROBE", "raise OSError('libcudart.so: no such file')")
    with pytest.raises(script("machine").CannotRun, match="libcudart"):
        script("machine").look_around(dict(os.environ), 60.0, True)


def test_the_checkout_comes_before_the_bundle_and_a_wrong_bundle_is_refused(tmp_path: Path) -> None:
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    manifest = {"target": {"python": here}, "parts": [{"folder": "part-1"}, {"folder": "part-2"}]}
    for name in ("part-1", "part-2/bin"):
        (tmp_path / name).mkdir(parents=True)
    path = tmp_path / "bundle.json"
    path.write_text(json.dumps(manifest))
    places = script("machine").search_path(tmp_path)
    assert places == [ROOT / "src", tmp_path / "part-1", tmp_path / "part-2"]
    environment = script("machine").environment(places)
    assert environment["PYTHONPATH"].startswith(os.pathsep.join(map(str, places)))
    assert environment["PATH"].endswith(str(tmp_path / "part-2" / "bin"))
    (tmp_path / "part-1").rmdir()
    for text, said in (
        (json.dumps(manifest), "part-1 is missing"),
        (json.dumps(manifest | {"target": {"python": "3.7"}}), r"for Python 3\.7"),
        ("{", "cannot be read"),
    ):
        path.write_text(text)
        with pytest.raises(script("machine").CannotRun, match=said):
            script("machine").search_path(tmp_path)
    assert script("machine").search_path(tmp_path / "none") == [ROOT / "src"]
