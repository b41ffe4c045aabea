"""Measure the judge itself. Every figure of the judge that the project shows comes from here.

    python benchmarks/bench_judge.py aa --verdicts 1000     rows called faster or slower when both sides are the same
    python benchmarks/bench_judge.py injected               a 5 % slowdown detected, a 1.5x speedup reported
    python benchmarks/bench_judge.py rows                   20 rows with the default policy
    python benchmarks/bench_judge.py kill                   `kill -9` at 50 random points
    python benchmarks/bench_judge.py startup                `kernwright --help`
    python benchmarks/bench_judge.py all

Each part keeps its records in a ledger of its own below --out and counts from there, so an interrupted run continues
where it stopped. The script asserts nothing: it measures, prints a table, and writes the figures to --out/figures.json.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import typer
from figures import note, page

from kernwright.cli.console import ProgressBar, err
from kernwright.judge.device.cpu import CpuDevice
from kernwright.judge.request import JudgeRequest, judge
from kernwright.ledger.ledger import Ledger
from kernwright.ledger.verify import verify
from kernwright.tasks.catalog import find_task, list_tasks

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
Out = Annotated[Path, typer.Option("--out", help="where ledgers and figures go")]
DEFAULT_OUT = Path(".kernwright/bench")
TASK = "norm_scale_shift"

SLOWED = '''"""The op's own reference, made slower: a call spins until it has taken `factor` times as long."""
import time

from kernwright.core.registry import shipped_ops


def _stretched(op, factor):
    reference = shipped_ops()[op].reference

    def run(*tensors, **scalars):
        start = time.perf_counter_ns()
        result = reference(*tensors, **scalars)
        end = start + int(factor * (time.perf_counter_ns() - start))
        while time.perf_counter_ns() < end:
            pass
        return result

    return run


def plain(op):
    return _stretched(op, 1.0)


def half_again(op):
    return _stretched(op, 1.5)
'''

CANDIDATE = '''"""The op's own reference, {factor} times as slow."""
from baselines import _stretched

norm_scale_shift = _stretched("norm_scale_shift", {factor})
'''


def _verdicts(ledger: Path) -> list[dict[str, Any]]:
    """Return the finished, full verdicts of a ledger on the present tasks. A missing ledger has none."""
    if not ledger.exists():
        return []
    records = [r.body for r in Ledger(ledger).all_records() if r.kind == "verdict"]
    wanted = {*(find_task(name).digest for name in list_tasks()), *_cut_digests(ledger)}
    return [body for body in records if body["evidence"] and body["task_digest"] in wanted]


def _cut_digests(ledger: Path) -> list[str]:
    """Return the digests of tasks that were reduced to a number of rows. Each is another task by its digest."""
    cut = ledger.parent / "twenty_rows"
    return [find_task(str(cut)).digest] if cut.is_dir() else []


def _rows(ledger: Path) -> list[dict[str, Any]]:
    return [row for verdict in _verdicts(ledger) for row in verdict["rows"]]


def _note(folder: Path, part: str, figures: dict[str, Any]) -> None:
    note(folder, part, figures, CpuDevice().describe())


def _judge(**wanted: Any) -> None:
    with ProgressBar() as bar:
        if judge(JudgeRequest(task=wanted.pop("task", TASK), wait_s=600.0, **wanted), bar).interrupted:
            raise typer.Exit(2)


def _share(rows: list[dict[str, Any]], outcomes: set[str]) -> float:
    return sum(row["verdict"] in outcomes for row in rows) / max(1, len(rows))


@app.command()
def aa(verdicts: int = 1000, rows: str = "smoke", minutes: float = 0.0, folder: Out = DEFAULT_OUT) -> None:
    """Judge every task against itself and count the rows that are called faster or slower."""
    ledger = folder / "aa"
    end = time.monotonic() + (60 * minutes or float("inf"))
    tasks = itertools.cycle(list_tasks())
    while (done := len(_rows(ledger))) < verdicts and time.monotonic() < end:
        task = next(tasks)
        err.print(f"{done} of {verdicts} row-verdicts; {task}", highlight=False)
        _judge(task=task, candidate=None, against_itself=True, rows=rows, ledger=ledger)
    found = _rows(ledger)
    machines = Counter(
        f"{v['provenance']['hardware']['architecture']}, torch {v['provenance']['libraries']['torch']}"
        for v in _verdicts(ledger)
        for _ in v["rows"]
    )
    bands = [row["metrics"]["stream"]["noise_band"] for row in found if "noise_band" in row["metrics"]["stream"]]
    _note(
        folder,
        "A/A",
        {
            "verdicts on rows": len(found),
            "rows": len({(v["task"], row["id"]) for v in _verdicts(ledger) for row in v["rows"]}),
            "verdicts by machine": dict(machines),
            "number called faster or slower": sum(row["verdict"] in ("faster", "slower") for row in found),
            "share called faster or slower": _share(found, {"faster", "slower"}),
            "share called same": _share(found, {"same"}),
            "share called inconclusive": _share(found, {"inconclusive"}),
            "median noise band": statistics.median(bands),
        },
    )


def _slowed_task(folder: Path) -> Path:
    """Return the task again, with added baselines of known slowness."""
    copy = folder / "slowed_task"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(find_task(TASK).folder, copy)
    (copy / "baselines.py").write_text(SLOWED)
    return copy


def _stretched_candidate(folder: Path, name: str, factor: float) -> Path:
    place = folder / name
    place.mkdir(parents=True, exist_ok=True)
    (place / "candidate.toml").write_text(
        'op = "norm_scale_shift"\nlanguage = "python"\nentry = "stretched.py:norm_scale_shift"\n'
    )
    (place / "baselines.py").write_text(SLOWED)
    (place / "stretched.py").write_text(CANDIDATE.format(factor=factor))
    return place


@app.command()
def injected(rows: str = "smoke", repeats: int = 3, folder: Out = DEFAULT_OUT) -> None:
    """Check that a known slowdown is detected and a known speedup is reported correctly."""
    folder.mkdir(parents=True, exist_ok=True)
    task = str(_slowed_task(folder))
    slow, fast = folder / "slowdown", folder / "speedup"
    while len(_verdicts(slow)) < repeats:
        _judge(
            task=task, baseline="plain", rows=rows, ledger=slow,
            candidate=_stretched_candidate(folder, "five_percent_slower", 1.05),
        )  # fmt: skip
    while len(_verdicts(fast)) < repeats:
        _judge(
            task=task, baseline="half_again", rows=rows, ledger=fast,
            candidate=_stretched_candidate(folder, "as_fast_as_plain", 1.0),
        )  # fmt: skip
    slowed, sped = _rows(slow), _rows(fast)
    ratios = [row["metrics"]["stream"]["ratio"] for row in sped]
    _note(
        folder,
        "injected differences",
        {
            "rows with a candidate that is 5 % slower": len(slowed),
            "share of these called slower": _share(slowed, {"slower"}),
            "outcomes": dict(Counter(row["verdict"] for row in slowed)),
            "reported slowdown, median": statistics.median(1 / r["metrics"]["stream"]["ratio"] for r in slowed),
            "rows with a candidate that is 1.5 times as fast": len(sped),
            "share of these called faster": _share(sped, {"faster"}),
            "reported speedup, median": statistics.median(ratios),
            "reported speedup, minimum": min(ratios),
            "reported speedup, maximum": max(ratios),
            "share with a reported speedup within 5 % of 1.5x": sum(abs(r / 1.5 - 1) <= 0.05 for r in ratios)
            / len(ratios),
        },
    )


@app.command()
def rows(count: int = 20, folder: Out = DEFAULT_OUT) -> None:
    """Measure the wall time of one whole command: rows judged with the default policy, including start and builds."""
    chosen = [row.id for row in find_task(TASK).rows if row.set == "smoke"][:count]
    task = folder / "twenty_rows"
    shutil.rmtree(task, ignore_errors=True)
    shutil.copytree(find_task(TASK).folder, task)
    lines = (task / "workloads.jsonl").read_text().splitlines()
    (task / "workloads.jsonl").write_text("\n".join(line for line in lines if json.loads(line)["id"] in chosen) + "\n")
    start = time.monotonic()
    done = _kernwright("judge", str(task), "--aa", "--ledger", str(folder / "rows"))
    elapsed = time.monotonic() - start
    found = _verdicts(folder / "rows")[-1]["rows"]
    _note(folder, "rows", {"rows": len(found), "seconds": elapsed, "exit status": done.returncode,
                           "outcomes": dict(Counter(row["verdict"] for row in found))})  # fmt: skip


@app.command()
def kill(times: int = 50, folder: Out = DEFAULT_OUT, seed: int = 1) -> None:
    """Kill the judge at random points. Check that no record is lost or half-written, and that the next run works."""
    ledger = folder / "kill"
    shutil.rmtree(ledger, ignore_errors=True)
    chance = random.Random(seed)
    command = ["judge", TASK, "--aa", "--rows", "smoke_plain_s19_*", "--ledger", str(ledger)]
    _kernwright(*command)  # one whole run, to measure its duration
    start = time.monotonic()
    _kernwright(*command)
    whole = time.monotonic() - start
    lost = damaged = left_behind = 0
    for number in range(times):
        process = subprocess.Popen([sys.executable, "-m", "kernwright.cli.main", *command, "--wait", "60"],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
        time.sleep(chance.uniform(0.0, whole))
        seen = _hashes(ledger)
        process.send_signal(signal.SIGKILL)
        process.wait()
        lost += len(seen - _hashes(ledger))
        damaged += len(verify(ledger))
        time.sleep(0.2)
        left_behind += len(_workers_of(process.pid))
        err.print(f"{number + 1} of {times} killed", highlight=False)
    finish = _kernwright(*command, "--wait", "60")
    _note(
        folder,
        "kill -9",
        {
            "runs killed": times,
            "records written before the kills": len(_hashes(ledger)),
            "records lost": lost,
            "problems found by kernwright ledger verify": damaged + len(verify(ledger)),
            "workers still running": left_behind,
            "exit status of the next run": finish.returncode,
        },
    )


def _hashes(ledger: Path) -> set[str]:
    return {record.hash for record in Ledger(ledger).all_records()} if ledger.exists() else set()


def _workers_of(judge_pid: int) -> list[str]:
    """Return the workers of a judge: the command line of their zygote, which they share, has the judge's process id."""
    pattern = f"kernwright.judge.worker.zygote [0-9]+ {judge_pid}$"
    return subprocess.run(["pgrep", "-f", pattern], capture_output=True, text=True, check=False).stdout.split()


def _kernwright(*words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-m", "kernwright.cli.main", *words], capture_output=True, check=False)


@app.command()
def startup(repeats: int = 5, folder: Out = DEFAULT_OUT) -> None:
    """Measure the time until a command prints its first output."""
    folder.mkdir(parents=True, exist_ok=True)
    times = []
    for _ in range(repeats):
        start = time.monotonic()
        _kernwright("--help")
        times.append(time.monotonic() - start)
    _note(folder, "startup", {"seconds of kernwright --help, median": statistics.median(times)})


COMMANDS = {"A/A": "aa", "injected differences": "injected", "rows": "rows", "kill -9": "kill", "startup": "startup"}


@app.command("page")
def write_page(folder: Out = DEFAULT_OUT, target: Path = Path("docs/figures.md")) -> None:
    """Write the recorded figures as a page."""
    page(folder, target, "Figures of the judge", "benchmarks/bench_judge.py", COMMANDS)


@app.command("all")
def everything(folder: Out = DEFAULT_OUT) -> None:
    """Run every part, the longest last."""
    parts: list[Callable[[], None]] = [
        lambda: startup(folder=folder), lambda: rows(folder=folder), lambda: kill(folder=folder),
        lambda: injected(folder=folder), lambda: aa(folder=folder), lambda: write_page(folder=folder),
    ]  # fmt: skip
    for part in parts:
        part()


if __name__ == "__main__":
    app()
