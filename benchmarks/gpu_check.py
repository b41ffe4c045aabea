"""Run all GPU tests and a short benchmark of the judge on this machine, and pack the results into one archive.

    python3 benchmarks/gpu_check.py [--out DIR] [--minutes 9.8] [--bundle DIR] (`make gpu` runs this)

It needs a Python with torch and CUDA, and no network: other imports come from the checkout's src/ and from a folder
that `kernwright bundle` made. Every step has a deadline. A step that overruns it is ended with its processes and
reported, and the archive is written in every case. --out then has evidence.tar.gz (for `kernwright ledger import`),
summary.json with the seconds of each step and of the slowest tests, tests.xml (pytest's report), and each step's log.
If an attack fooled the naive harness for the first time, it also has fooled.json (to commit as
tests/exploits/fooled.json).

Exit status 0: the tests and the benchmark passed. 1: one of them failed. 2: the check could not run here.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gpu_machine import ROOT, CannotRun, environment, look_around, search_path
from gpu_steps import LEDGER, REPORT, Outcome, build_command, run_benchmark, run_tests

ARCHIVE, SUMMARY = "evidence.tar.gz", "summary.json"
STEPS = ("builds", "tests", "judged-tests", "benchmark")
TESTS_SHARE = 0.7  # least share of the time for tests; the rest is for the benchmark
BENCHMARK_S = 85.0  # the benchmark needs no more
MOST_PROCESSES = 14  # each process has a context on the device


def read_figures(work: Path) -> Any:
    try:
        # A ledger cannot hold NaN and infinity, so their names are recorded.
        return json.loads((work / "benchmark" / "figures.json").read_text(), parse_constant=str)
    except (OSError, ValueError):
        return {}


def gather(work: Path, summary: dict[str, Any], archive: Path) -> list[str]:
    """Pack every ledger of the steps, and the summary, as one ledger into one archive. Return what was left out."""
    from kernwright.core.errors import LedgerError
    from kernwright.ledger.ledger import Ledger
    from kernwright.ledger.transfer import export_runs, import_runs

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
    from kernwright.bundle.own_files import own_files
    from kernwright.packages.files import digest_of

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
    console = Console(width=132)
    console.print(table)
    for seconds, name in counts.get("slowest", ()):
        console.print(f"{seconds:7.1f} s  {name}", highlight=False, markup=False, soft_wrap=True)


def figure_lines(figures: Any) -> list[str]:
    """Return the lines with the benchmark's figures. Its own tables are in its log."""
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
    reserve = min(20.0, 6.0 * options.minutes)  # time to end the last step and to write the archive
    end = start + 60.0 * options.minutes - reserve
    places = search_path(options.bundle)
    sys.path[:0] = [str(place) for place in places]
    env = environment(places)
    found = look_around(env, end - start, options.allow_cpu)
    options.out.mkdir(parents=True, exist_ok=True)
    for stale in (ARCHIVE, SUMMARY, REPORT, LEDGER, *(f"{step}.log" for step in STEPS)):
        (options.out / stale).unlink(missing_ok=True)
    work = Path(tempfile.mkdtemp(prefix="kernwright-gpu-"))
    env["KERNWRIGHT_LEDGER"] = str(work / "ledger")  # ledger of commands that name none
    outcomes = refuse_unknown(found["kernels"])
    left = end - time.monotonic()
    seconds = max(TESTS_SHARE * left, left - BENCHMARK_S)
    tested, counts = run_tests(options.tests, env, options.out, seconds, options.processes, build_missing(found))
    outcomes += tested
    if outcomes[-1].status != "interrupted":
        outcomes.append(run_benchmark(options.benchmark, env, work, options.out, end - time.monotonic()))
    summary = {
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "device": found["device"],
        "libraries": found["libraries"], "kernels": found["kernels"], **own_version(),
        "steps": [asdict(outcome) for outcome in outcomes], "tests": counts, "figures": read_figures(work),
        "seconds": time.monotonic() - start, "minutes allowed": options.minutes,
    }  # fmt: skip
    (options.out / SUMMARY).write_text(json.dumps(summary, indent=1) + "\n")
    problems = gather(work, summary, options.out / ARCHIVE)
    shutil.rmtree(work)  # only now, so that the ledgers survive every earlier failure
    return report(options.out, summary, outcomes, problems)


def refuse_unknown(kernels: dict[str, Any] | None) -> list[Outcome]:
    """Return a failed step if the libraries of kernels could not be listed, because their tests would all fail too."""
    if not kernels or "unknown" not in kernels:
        return []
    print(f"the libraries of kernels cannot be listed: {kernels['unknown']}", flush=True)
    return [Outcome("inventory", "failed", detail=f"the libraries of kernels cannot be listed: {kernels['unknown']}")]


def build_missing(found: dict[str, Any]) -> list[str] | None:
    """Return the command that builds missing libraries of kernels, or None if none is missing."""
    if not (kernels := found["kernels"]) or kernels["built"] >= kernels["all"]:
        return None
    print(
        f"{kernels['built']} of {kernels['all']} libraries of kernels are built; to save the time for the others, "
        "bring them along (kernwright build --machine, KERNWRIGHT_BUILDS)",
        flush=True,
    )
    return build_command("sm_{}{}".format(*found["device"]["capability"]))


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
    parser.add_argument("--minutes", type=float, default=9.8, help="for everything together")
    parser.add_argument("--bundle", type=Path, default=ROOT / "bundle", help="what `kernwright bundle` made")
    parser.add_argument("--tests", type=Path, default=ROOT / "tests", help="tests; those marked gpu are run")
    parser.add_argument("--benchmark", type=Path, default=ROOT / "benchmarks" / "bench_judge_gpu.py")
    parser.add_argument(
        "--processes", type=int, default=min(MOST_PROCESSES, max(1, len(os.sched_getaffinity(0)) - 2)),
        help="tests that take nobody's time run in so many at once",
    )  # fmt: skip
    parser.add_argument("--allow-cpu", action="store_true", help="go on without a CUDA device, to try the procedure")
    options = parser.parse_args(words)
    if options.minutes <= 0 or options.processes < 1:
        parser.error("--minutes must be above 0, and --processes at least 1")
    for name in ("out", "bundle", "tests"):
        setattr(options, name, getattr(options, name).resolve())  # steps run in the checkout's folder
    # Behaves like Ctrl-C, so that the archive is still written.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return check(options)
    except CannotRun as problem:
        print(f"gpu check: {problem}", file=sys.stderr)
    except KeyboardInterrupt:
        print("gpu check: interrupted before its first step", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
