"""Steps of a GPU check: builds, tests and a benchmark, each with a deadline and a log, and without leftover
processes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_machine import ROOT

GRACE_S = 10.0  # time from an interrupt to a kill: a judge records the interruption, and pytest its results
NONE_SELECTED = 5  # pytest's exit status if no test was selected
MOST_BUILDING = 0.4  # share of the tests' time for builds and the attacks that run meanwhile
MOST_TOGETHER = 0.5  # share of the remaining time for tests that run in parallel, so that the others have enough
GPU_MARK, CONVICTED_MARK = "mark.gpu", "mark.convicted"  # the text of a file with a test that has the mark
SLOWEST = 30  # tests whose durations are reported
REPORT, LEDGER = "tests.xml", "fooled.json"
COMMITTED_LEDGER = ROOT / "tests" / "exploits" / LEDGER  # attacks that were shown to fool the naive harness


@dataclass
class Outcome:
    """The outcome of a step."""

    name: str
    status: str  # passed, failed, overran, absent or interrupted
    seconds: float = 0.0
    exit_status: int | None = None
    detail: str = ""

    @property
    def good(self) -> bool:
        return self.status in ("passed", "absent")


def run_step(
    name: str, commands: Sequence[list[str]], envs: Sequence[dict[str, str]], log: Path, seconds: float
) -> Outcome:
    """Run commands in parallel, each in its own process group. All processes of the groups are gone afterwards."""
    print(f"{name}: at most {seconds:.0f} s, log in {log}", flush=True)
    start = time.monotonic()
    logs = [log.with_suffix(f".{number}") for number in range(len(commands))]
    status = "passed"
    with contextlib.ExitStack() as streams:
        processes = [
            subprocess.Popen(
                command, env=env, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=streams.enter_context(own.open("wb")),
                stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=_heed_interrupts,
            )
            for command, env, own in zip(commands, envs, logs, strict=True)
        ]  # fmt: skip
        try:
            for process in processes:
                process.wait(max(1.0, start + seconds - time.monotonic()))
        except subprocess.TimeoutExpired:
            status = "overran"
        except KeyboardInterrupt:
            status = "interrupted"
        finally:
            _end(processes)
    log.write_bytes(b"".join(own.read_bytes() for own in logs))
    for own in logs:
        own.unlink()
    codes = [process.returncode for process in processes]
    if status == "passed" and any(codes):
        status = "failed"
    return Outcome(name, status, time.monotonic() - start, next(filter(None, codes), 0))


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Interrupt the processes, so that records are completed, and then kill them with their groups."""
    running = [process for process in processes if process.poll() is None]
    for process in running:
        process.send_signal(signal.SIGINT)
    end = time.monotonic() + GRACE_S
    for process in running:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, end - time.monotonic()))
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            # The next step should find the device free. A zombie that is not reaped is no reason to wait.
            for _ in range(20):
                os.killpg(process.pid, signal.SIGKILL)
                process.poll()
                time.sleep(0.1)
        with contextlib.suppress(subprocess.TimeoutExpired):  # a process that the driver blocks is not waited for
            process.wait(GRACE_S / 2)


def count_tests(reports: Iterable[Path]) -> dict[str, Any]:
    """Return the counts of pytest's reports, or none if pytest was ended before it wrote one."""
    suites = []
    for report in reports:
        with contextlib.suppress(OSError, ElementTree.ParseError):
            suites += ElementTree.parse(report).iter("testsuite")
    if not suites:
        return {}
    # The totals count, because the interrupted test is listed as if it had passed.
    total, wrong, broken, skipped = (
        sum(int(suite.get(key, 0)) for suite in suites) for key in ("tests", "failures", "errors", "skipped")
    )
    failures, reasons, seconds, durations = [], Counter[str](), Counter[str](), []
    for case in (case for suite in suites for case in suite.iter("testcase")):
        name, took = f"{case.get('classname')}::{case.get('name')}", float(case.get("time") or 0)
        seconds[str(case.get("classname"))] += took  # type: ignore[assignment]
        durations.append((round(took, 1), name))
        if case.find("failure") is not None or case.find("error") is not None:
            failures.append(name)
        if (skip := case.find("skipped")) is not None:
            reasons[str(skip.get("message"))] += 1
    return {
        "passed": total - wrong - broken - skipped, "failed": wrong + broken, "skipped": skipped,
        "failures": failures[:50], "skip reasons": dict(reasons),
        "seconds, all processes": {name: round(own, 1) for name, own in seconds.most_common(20)},
        "slowest": sorted(durations, reverse=True)[:SLOWEST],
    }  # fmt: skip


def merge_reports(reports: Iterable[Path], target: Path) -> None:
    """Write all of pytest's reports as one file, because some machines return only a few files."""
    merged = ElementTree.Element("testsuites")
    for report in reports:
        with contextlib.suppress(OSError, ElementTree.ParseError):
            merged.extend(ElementTree.parse(report).iter("testsuite"))
    ElementTree.ElementTree(merged).write(target, encoding="unicode", xml_declaration=True)


def build_command(architecture: str) -> list[str]:
    """Return the command that builds every native library that is missing, one for each processor."""
    from kernwright.runtime.library import cache_folder

    return [sys.executable, "-m", "kernwright", "build", "--arch", architecture, "--out", str(cache_folder())]


def _heed_interrupts() -> None:
    """Accept Ctrl-C. A shell starts background programs with Ctrl-C ignored, and the steps, which inherit this, are
    ended by it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def run_tests(
    tests: Path, env: dict[str, str], out: Path, seconds: float, processes: int = 1, build: list[str] | None = None
) -> tuple[list[Outcome], dict[str, Any]]:
    """Run tests: first those that only compute, in parallel, then those that measure time, one after the other.

    Before both, libraries are built on all processors (``build``). Meanwhile the GPU is free, so attacks that must be
    convicted of wrong results are judged there one by one. They need the GPU but no quiet processors.

    Attacks that fool the naive harness here for the first time are recorded in a ledger next to the logs.
    """
    end = time.monotonic() + seconds
    ledger = out / LEDGER
    if COMMITTED_LEDGER.is_file():
        ledger.write_bytes(COMMITTED_LEDGER.read_bytes())
    env = env | {"KERNWRIGHT_NAIVE_HARNESS": "record", "KERNWRIGHT_FOOLED": str(ledger)}
    with tempfile.TemporaryDirectory() as folder:
        together = [Path(folder) / f"{number}.xml" for number in range(processes)]
        alone = Path(folder) / "alone.xml"
        claims = Path(folder) / "claims"
        claims.mkdir()
        # Otherwise each process would use all processors.
        threads = str(max(1, len(os.sched_getaffinity(0)) // processes))
        shares = [
            env
            | {"KERNWRIGHT_TEST_CLAIMS": str(claims), "KERNWRIGHT_LOCKS": f"{folder}/{number}"}
            | {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
            for number in range(processes)
        ]
        for share in shares:
            Path(share["KERNWRIGHT_LOCKS"]).mkdir()
        files = files_with(GPU_MARK, tests)
        convicted = Path(folder) / "convicted.xml"
        first = [build] if build else []
        if CONVICTED_MARK in "".join(path.read_text(errors="replace") for path in files if path.is_file()):
            first.append(_pytest(files_with(CONVICTED_MARK, tests), "gpu and convicted", convicted))
        outcomes = []
        if first:
            outcomes.append(run_step("builds", first, [env] * len(first), out / "builds.log", MOST_BUILDING * seconds))
        if not outcomes or outcomes[-1].status != "interrupted":
            outcomes.append(
                run_step(
                    "tests", [_pytest(files, "gpu and not alone", report) for report in together], shares,
                    out / "tests.log", MOST_TOGETHER * (end - time.monotonic()),
                )
            )  # fmt: skip
        if outcomes[-1].status != "interrupted":
            outcomes.append(
                run_step(
                    "judged-tests",
                    [_pytest(files[::-1], "gpu and alone and not convicted", alone, "-v")],
                    [env],
                    out / "judged-tests.log",
                    end - time.monotonic(),
                )
            )  # fmt: skip  (backwards: the judge's own, which are few, before the many attacks)
        counts = count_tests([convicted, *together, alone])
        merge_reports([convicted, *together, alone], out / REPORT)
    if ledger.is_file() and COMMITTED_LEDGER.is_file() and ledger.read_bytes() == COMMITTED_LEDGER.read_bytes():
        ledger.unlink()  # nothing was added
    for outcome in outcomes:
        if outcome.exit_status == NONE_SELECTED:  # no test of one kind; whether there were any tests is checked below
            outcome.status = "passed"
    if not counts.get("passed"):  # pytest also succeeds if every test was skipped
        first_tests = next((own for own in outcomes if own.name == "tests"), outcomes[0])
        first_tests.status = "failed" if first_tests.status == "passed" else first_tests.status
        if not counts.get("failed") and first_tests.status == "failed":
            first_tests.detail = "no test ran"
    return outcomes, counts


def _pytest(files: Sequence[Path], marked: str, report: Path, detail: str = "-q") -> list[str]:
    return [
        sys.executable, "-m", "pytest", "-m", marked, detail, "--durations=30", "-p", "no:cacheprovider",
        f"--junitxml={report}", *map(str, files),
    ]  # fmt: skip


def files_with(mark: str, tests: Path) -> list[Path]:
    """Return the files with a test that has a mark, because collecting all other files takes longer than some tests."""
    files = sorted(tests.rglob("test_*.py")) if tests.is_dir() else [tests]
    return [path for path in files if mark in path.read_text(errors="replace")] or [tests]


def run_benchmark(script: Path, env: dict[str, str], work: Path, out: Path, seconds: float) -> Outcome:
    if not script.is_file():
        return Outcome("benchmark", "absent", detail=f"there is no {script.name}")
    command = [sys.executable, str(script), "short", "--out", str(work / "benchmark")]
    return run_step("benchmark", [command], [env], out / "benchmark.log", seconds)
