"""All GPU tests and a short benchmark of the judge on this machine, and what came of it in one archive.

    python3 benchmarks/gpu_check.py [--out DIR] [--minutes 9] [--bundle DIR]        (`make gpu` runs this)

It needs a Python with torch and CUDA, and no network: what else it imports comes from the checkout's src/ and from a
folder that `kernwright bundle` made. Every step has a deadline; one that overruns it is ended with its processes and
reported, and the archive is written all the same. --out then holds evidence.tar.gz (for `kernwright ledger import`),
summary.json, and each step's log.

Exit status 0: the tests passed, and so did the benchmark. 1: something did not. 2: it could not run here.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
ARCHIVE, SUMMARY = "evidence.tar.gz", "summary.json"
GRACE_S = 10.0  # from the request to end to the end: a judge records that it was interrupted, pytest what it has seen
TESTS_SHARE = 0.7  # of the time; the benchmark has what is left
NONE_SELECTED = 5  # pytest's exit status
MOST_PROCESSES = 8  # with a context on the device each

# In a process of its own: a driver that hangs must not take the archive with it.
PROBE = """
import importlib.util, json
needed = ("torch", "numpy", "scipy", "pydantic", "tvm_ffi", "typer", "rich", "pytest", "hypothesis")
missing = [name for name in needed if importlib.util.find_spec(name) is None]
device, libraries = None, {}
if not missing:
    from kernwright.judge.provenance import library_versions
    libraries = library_versions()
if "torch" not in missing:
    import torch
    if torch.cuda.is_available():
        seen = torch.cuda.get_device_properties(0)
        device = {"name": seen.name, "capability": [seen.major, seen.minor], "memory_bytes": seen.total_memory,
                  "processors": seen.multi_processor_count, "cuda": torch.version.cuda,
                  "count": torch.cuda.device_count()}
        try:
            import pynvml
            pynvml.nvmlInit()
            device["driver"] = str(pynvml.nvmlSystemGetDriverVersion())
        except Exception as error:
            device["driver"] = f"unknown: {error}"
print(json.dumps({"missing": missing, "device": device, "libraries": libraries}))
"""


@dataclass
class Outcome:
    """How a step ended."""

    name: str
    status: str  # passed, failed, overran, absent, interrupted
    seconds: float = 0.0
    exit_status: int | None = None
    detail: str = ""

    @property
    def good(self) -> bool:
        return self.status in ("passed", "absent")


class CannotRun(Exception):
    """What is missing here, and the remedy."""


def search_path(bundle: Path) -> list[Path]:
    """The checkout before the bundle, so that a Kernwright in the bundle never hides the one that is being tested."""
    places = [ROOT / "src"]
    try:
        manifest = json.loads((bundle / "bundle.json").read_text())
        wanted, parts = manifest["target"]["python"], [bundle / part["folder"] for part in manifest["parts"]]
    except FileNotFoundError:
        return places
    except (ValueError, KeyError, TypeError):
        raise CannotRun(f"{bundle}/bundle.json cannot be read\n  remedy: carry the bundle over again") from None
    if wanted != f"{sys.version_info.major}.{sys.version_info.minor}":
        here = ".".join(map(str, sys.version_info[:2]))
        raise CannotRun(
            f"{bundle} is for Python {wanted}, this is {here}\n"
            f"  remedy: make PYTHON=python{wanted} gpu, or another bundle"
        )
    if absent := [str(part) for part in parts if not part.is_dir()]:
        raise CannotRun(f"{', '.join(absent)} is missing\n  remedy: carry every part of the bundle over")
    return places + parts


def environment(places: list[Path]) -> dict[str, str]:
    inherited = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    paths = [*map(str, places), *inherited]
    scripts = [str(place / "bin") for place in places if (place / "bin").is_dir()]
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),
        # After the machine's own: a ninja that came along is for a machine that has none.
        "PATH": os.pathsep.join([os.environ.get("PATH", os.defpath), *scripts]),
        "PYTHONUNBUFFERED": "1",
    }


def look_around(environment: dict[str, str], seconds: float, allow_cpu: bool) -> dict[str, Any]:
    """The device and what is installed; raises where the tests could not run."""
    command = [sys.executable, "-c", PROBE]
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=seconds, check=False)
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        raise CannotRun(
            f"torch did not find a device in {seconds:.0f} s\n  remedy: does `nvidia-smi` answer?"
        ) from None
    except (ValueError, IndexError):
        said = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
        raise CannotRun(
            f"torch cannot be imported: {said[0]}\n  remedy: make PYTHON=... gpu, with one that can"
        ) from None
    if found["missing"]:
        raise CannotRun(
            f"{sys.executable} lacks {', '.join(found['missing'])}\n"
            "  remedy: torch, numpy and scipy must be this machine's (make PYTHON=... gpu chooses another Python);\n"
            "  the rest comes from `kernwright bundle bundle --python 3.12 --with-tests`, where there is a network"
        )
    if found["device"] is None and not allow_cpu:
        raise CannotRun("no CUDA device is seen here\n  remedy: run it on a GPU machine; `make test` needs none")
    return found


def run_step(
    name: str, commands: Sequence[list[str]], envs: Sequence[dict[str, str]], log: Path, seconds: float
) -> Outcome:
    """Commands side by side, each in a process group of its own, which is gone afterwards, whatever it did."""
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
    """Politely first, so that records are completed; then outright, the groups with them."""
    running = [process for process in processes if process.poll() is None]
    for process in running:
        process.send_signal(signal.SIGINT)
    end = time.monotonic() + GRACE_S
    for process in running:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, end - time.monotonic()))
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            # The next step should find the device free; a zombie that nobody buries is no reason to wait.
            for _ in range(20):
                os.killpg(process.pid, signal.SIGKILL)
                process.poll()
                time.sleep(0.1)
        process.wait()


def count_tests(reports: Iterable[Path]) -> dict[str, Any]:
    """What pytest's reports say; nothing where it was ended before it could write one."""
    suites = []
    for report in reports:
        with contextlib.suppress(OSError, ElementTree.ParseError):
            suites += ElementTree.parse(report).iter("testsuite")
    if not suites:
        return {}
    # The totals, since the test that was interrupted stands among the cases as if it had passed.
    total, wrong, broken, skipped = (
        sum(int(suite.get(key, 0)) for suite in suites) for key in ("tests", "failures", "errors", "skipped")
    )
    failures, reasons = [], Counter[str]()
    for case in (case for suite in suites for case in suite.iter("testcase")):
        if case.find("failure") is not None or case.find("error") is not None:
            failures.append(f"{case.get('classname')}::{case.get('name')}")
        if (skip := case.find("skipped")) is not None:
            reasons[str(skip.get("message"))] += 1
    return {
        "passed": total - wrong - broken - skipped, "failed": wrong + broken, "skipped": skipped,
        "failures": failures[:50], "skip reasons": dict(reasons),
    }  # fmt: skip


def _heed_interrupts() -> None:
    """A program that a shell started in the background ignores Ctrl-C; the steps, which are ended by it, must not."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def run_tests(
    tests: Path, env: dict[str, str], out: Path, seconds: float, processes: int = 1
) -> tuple[list[Outcome], dict[str, Any]]:
    """First those that only compute, many at once; then those that take the time of something, one after the other."""
    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        together = [Path(folder) / f"{number}.xml" for number in range(processes)]
        alone = Path(folder) / "alone.xml"
        shares = [
            env | {"KERNWRIGHT_TEST_SHARE": f"{number}/{processes}", "KERNWRIGHT_LOCKS": f"{folder}/{number}"}
            for number in range(1, processes + 1)
        ]
        for share in shares:
            Path(share["KERNWRIGHT_LOCKS"]).mkdir()
        outcomes = [
            run_step(
                "tests", [_pytest(tests, "gpu and not alone", report) for report in together], shares,
                out / "tests.log", seconds,
            )
        ]  # fmt: skip
        if outcomes[0].status != "interrupted":
            outcomes.append(
                run_step(
                    "judged tests", [_pytest(tests, "gpu and alone", alone)], [env], out / "judged tests.log",
                    end - time.monotonic(),
                )
            )  # fmt: skip
        counts = count_tests([*together, alone])
    for outcome in outcomes:
        if outcome.exit_status == NONE_SELECTED:  # of one kind; whether there were any at all is seen below
            outcome.status = "passed"
    if not counts.get("passed"):  # pytest is content when every test was skipped
        outcomes[0].status = "failed" if outcomes[0].status == "passed" else outcomes[0].status
        if not counts.get("failed") and outcomes[0].status == "failed":
            outcomes[0].detail = "no test ran"
    return outcomes, counts


def _pytest(tests: Path, marked: str, report: Path) -> list[str]:
    return [
        sys.executable, "-m", "pytest", "-m", marked, "-q", "--durations=5", "-p", "no:cacheprovider",
        f"--junitxml={report}", str(tests),
    ]  # fmt: skip


def run_benchmark(script: Path, env: dict[str, str], work: Path, out: Path, seconds: float) -> Outcome:
    if not script.is_file():
        return Outcome("benchmark", "absent", detail=f"there is no {script.name}")
    command = [sys.executable, str(script), "short", "--out", str(work / "benchmark")]
    return run_step("benchmark", [command], [env], out / "benchmark.log", seconds)


def read_figures(work: Path) -> Any:
    try:
        # NaN and infinity have no place in a ledger; their names do.
        return json.loads((work / "benchmark" / "figures.json").read_text(), parse_constant=str)
    except (OSError, ValueError):
        return {}


def gather(work: Path, summary: dict[str, Any], archive: Path) -> list[str]:
    """Every ledger that the steps made, and the summary, as one ledger in one archive; returns what was left out."""
    from kernwright.campaign.ledger import Ledger
    from kernwright.campaign.ledger_transfer import export_runs, import_runs
    from kernwright.errors import LedgerError

    problems = []
    evidence = work / "evidence"
    for heads in sorted(work.rglob("heads.jsonl")):
        try:
            import_runs(evidence, heads.parent)
        except LedgerError as error:
            problems.append(f"{heads.parent.relative_to(work)}: {error.cause}")
    ledger = Ledger(evidence)
    made_by = {"command": "gpu_check", "device": summary["device"], "libraries": summary["libraries"]}
    with ledger.open_run(made_by) as run:
        run.append("gpu_check", summary | {"left out": problems})
    export_runs(evidence, ledger.runs(), archive)
    return problems


def own_version() -> dict[str, Any]:
    from kernwright import __version__
    from kernwright.bundle.files import digest_of
    from kernwright.bundle.origin import own_files

    return {"kernwright": __version__, "sources": digest_of(own_files())}


def show(summary: dict[str, Any], outcomes: list[Outcome]) -> None:
    from rich.console import Console
    from rich.table import Table

    device = summary["device"] or {"name": "no CUDA device"}
    table = Table("step", "status", "seconds", "what", title=f"{device['name']}, {summary['seconds']:.0f} s in all")
    counts = summary["tests"]
    said = {
        "tests": f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped" if counts else ""
    }
    for outcome in outcomes:
        what = " ".join(part for part in (said.get(outcome.name, ""), outcome.detail) if part)
        table.add_row(outcome.name, outcome.status, f"{outcome.seconds:.0f}", what)
    for line in figure_lines(summary["figures"]):
        table.add_row("", "", "", line)
    Console(width=132).print(table)


def figure_lines(figures: Any) -> list[str]:
    """The benchmark's figures, whatever their shape: its own tables are in its log."""
    lines = []
    for part, entry in figures.items() if isinstance(figures, dict) else ():
        inner = entry.get("figures", entry) if isinstance(entry, dict) else entry
        for name, value in inner.items() if isinstance(inner, dict) else [("", inner)]:
            lines.append(f"{part}: {name}: {f'{value:.4g}' if isinstance(value, float) else value}"[:120])
    return lines


def show_end_of_log(log: Path) -> None:
    with contextlib.suppress(OSError):
        print(f"--- the end of {log}", *log.read_text(errors="replace").splitlines()[-30:], sep="\n", flush=True)


def check(options: argparse.Namespace) -> int:
    start = time.monotonic()
    reserve = min(30.0, 6.0 * options.minutes)  # for ending the last step and writing the archive
    end = start + 60.0 * options.minutes - reserve
    places = search_path(options.bundle)
    sys.path[:0] = [str(place) for place in places]
    env = environment(places)
    found = look_around(env, end - start, options.allow_cpu)
    options.out.mkdir(parents=True, exist_ok=True)
    for stale in (ARCHIVE, SUMMARY, "tests.log", "judged tests.log", "benchmark.log"):
        (options.out / stale).unlink(missing_ok=True)
    work = Path(tempfile.mkdtemp(prefix="kernwright-gpu-"))
    env["KERNWRIGHT_LEDGER"] = str(work / "ledger")  # for whatever is judged without naming a ledger
    seconds = TESTS_SHARE * (end - time.monotonic())
    outcomes, counts = run_tests(options.tests, env, options.out, seconds, options.processes)
    if outcomes[-1].status != "interrupted":
        outcomes.append(run_benchmark(options.benchmark, env, work, options.out, end - time.monotonic()))
    summary = {
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "device": found["device"],
        "libraries": found["libraries"], **own_version(),
        "steps": [asdict(outcome) for outcome in outcomes], "tests": counts, "figures": read_figures(work),
        "seconds": time.monotonic() - start, "minutes allowed": options.minutes,
    }  # fmt: skip
    (options.out / SUMMARY).write_text(json.dumps(summary, indent=1) + "\n")
    problems = gather(work, summary, options.out / ARCHIVE)
    shutil.rmtree(work)  # only now: whatever went wrong above, the ledgers are still there
    return report(options.out, summary, outcomes, problems)


def report(out: Path, summary: dict[str, Any], outcomes: list[Outcome], problems: list[str]) -> int:
    for outcome in outcomes:
        if not outcome.good:
            show_end_of_log(out / f"{outcome.name}.log")
    show(summary, outcomes)
    for problem in problems:
        print(f"left out of the archive: {problem}")
    print(f"{out / ARCHIVE}: bring it back and `kernwright ledger import` it")
    return 0 if all(outcome.good for outcome in outcomes) and not problems else 1


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--out", type=Path, default=Path(".kernwright/gpu"), help="where the archive goes")
    parser.add_argument("--minutes", type=float, default=9.0, help="for everything together")
    parser.add_argument("--bundle", type=Path, default=ROOT / "bundle", help="what `kernwright bundle` made")
    parser.add_argument("--tests", type=Path, default=ROOT / "tests", help="tests; those marked gpu are run")
    parser.add_argument("--benchmark", type=Path, default=ROOT / "benchmarks" / "bench_judge_gpu.py")
    parser.add_argument(
        "--processes", type=int, default=min(MOST_PROCESSES, max(1, len(os.sched_getaffinity(0)) // 2)),
        help="tests that take nobody's time run in so many at once",
    )  # fmt: skip
    parser.add_argument("--allow-cpu", action="store_true", help="go on without a CUDA device, to try the procedure")
    options = parser.parse_args(words)
    if options.minutes <= 0 or options.processes < 1:
        parser.error("--minutes must be above 0, and --processes at least 1")
    options.out, options.bundle = options.out.resolve(), options.bundle.resolve()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: the archive is still written
    try:
        return check(options)
    except CannotRun as problem:
        print(f"gpu check: {problem}", file=sys.stderr)
    except KeyboardInterrupt:
        print("gpu check: interrupted before its first step", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
