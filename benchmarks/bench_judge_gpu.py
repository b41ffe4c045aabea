"""Measure the judge on a GPU. Every figure of it that the project shows comes from here.

    python benchmarks/bench_judge_gpu.py aa --verdicts 1000   rows called faster or slower when both sides are the same
    python benchmarks/bench_judge_gpu.py injected             small slowdowns detected, speedups reported
    python benchmarks/bench_judge_gpu.py clock                the judge's clock against CUDA events
    python benchmarks/bench_judge_gpu.py spread               how blocks of several lengths spread
    python benchmarks/bench_judge_gpu.py alone                where the time of a single call goes, and its noise
    python benchmarks/bench_judge_gpu.py row                  one row with the default policy, workers warm
    python benchmarks/bench_judge_gpu.py faults               illegal addresses, hangs and full memory, 20 times each
    python benchmarks/bench_judge_gpu.py short                a little of everything, in about 80 seconds

The rows are naps (naps.py). Each part keeps its records in a ledger of its own below --out and counts from there, so an
interrupted run continues where it stopped. The script asserts nothing: it measures, prints a table, and writes the
figures to --out/figures.json.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import typer
from block_noise import calls_by_themselves, clock_against_events, noise_of, spreads
from figures import note, page
from naps import (
    AFTER_NAP_NS,
    ALIKE,
    FAULTS,
    TWENTY_US,
    napping,
    naps_between,
    write_candidate,
    write_task,
)

from kernwright.baselines.lookup import find_baseline
from kernwright.cli.console import ProgressBar, err
from kernwright.judge.contest.worker_group import WorkerGroup
from kernwright.judge.contest.worker_spec import baseline_spec
from kernwright.judge.device.keepalive import keep_processor_awake
from kernwright.judge.device.selection import find_device
from kernwright.judge.record.provenance import judge_digest
from kernwright.judge.record.verdict import Verdict
from kernwright.judge.request import JudgeRequest, judge, judge_together
from kernwright.judge.system.processors import apart_from
from kernwright.ledger.ledger import Ledger
from kernwright.tasks.catalog import find_task
from kernwright.tasks.task import Task
from kernwright.tasks.workload import Workload

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
Out = Annotated[Path, typer.Option("--out", help="where ledgers and figures go")]
DEFAULT_OUT = Path(".kernwright/bench_gpu")
ROWS_AT_ONCE = 16  # rows per A/A judgement; an interrupted judgement does not count


def _judge(**wanted: Any) -> Verdict:
    with ProgressBar() as bar:
        verdict = judge(JudgeRequest(device="cuda", wait_s=600.0, **wanted), bar)
    if verdict.interrupted:
        raise typer.Exit(2)
    return verdict


def _verdicts(ledger: Path, task: Path, candidate: str | None = None) -> list[dict[str, Any]]:
    """Return the finished verdicts of a ledger on the present task."""
    if not ledger.exists():
        return []
    digest = find_task(str(task)).digest
    bodies = [record.body for record in Ledger(ledger).all_records() if record.kind == "verdict"]
    return [body for body in bodies if body["task_digest"] == digest and candidate in (None, body["candidate"])]


def _rows(ledger: Path, task: Path) -> list[dict[str, Any]]:
    """Return the rows of verdicts that are evidence."""
    return [
        row | {"judged": body["provenance"]["started"], "judge": body["provenance"].get("judge", "")}
        for body in _verdicts(ledger, task)
        if body["evidence"]
        for row in body["rows"]
    ]


def _note(folder: Path, part: str, figures: dict[str, Any]) -> None:
    note(folder, part, figures, find_device("cuda").describe())


def _share(rows: list[dict[str, Any]], *outcomes: str) -> float:
    return sum(row["verdict"] in outcomes for row in rows) / max(1, len(rows))


@app.command()
def aa(
    verdicts: int = 1000,
    minutes: float = 0.0,
    rows: str | None = None,
    folder: Out = DEFAULT_OUT,
    kept: Annotated[Path | None, typer.Option("--ledger", help="where verdicts are kept; else below --out")] = None,
) -> None:
    """Count rows that are called faster or slower although both sides are the same. Several contenders run against one
    baseline, on the few rows that have the fewest verdicts so far."""
    task = write_task(folder, "stream")
    ledger = kept or folder / "aa"
    wanted = [row.id for row in find_task(str(task)).select(rows, default="production")]
    end = time.monotonic() + (60 * minutes or float("inf"))
    started = time.monotonic()
    before = len(_rows(ledger, task))
    while len(done := _rows(ledger, task)) < verdicts and time.monotonic() < end:
        err.print(f"{len(done)} of {verdicts} row-verdicts", highlight=False)
        counts = Counter(row["id"] for row in done)
        few = sorted(wanted, key=counts.__getitem__)[:ROWS_AT_ONCE]
        asked = JudgeRequest(
            task=str(task), candidate=None, baseline="steady", against_itself=True, rows=",".join(few), ledger=ledger,
            census=False, device="cuda", wait_s=600.0,
        )  # fmt: skip
        alike = [replace(asked, against_itself=False, contender=name) for name in ALIKE]
        with ProgressBar() as bar:
            judged = judge_together([asked, *alike], bar)
        if any(verdict is None or verdict.interrupted for verdict in judged):
            raise typer.Exit(2)
    found = _rows(ledger, task)
    wrong = [row for row in found if row["verdict"] in ("faster", "slower")]
    figures = {
        "verdicts on rows": len(found),
        "of these by the current version of the judge": sum(row["judge"] == judge_digest() for row in found),
        "judgements of a row (verdicts of one judgement share a baseline)": len(
            {(row["id"], row["judged"]) for row in found}
        ),
        "number called faster or slower": len(wrong),
        "share called faster or slower": _share(found, "faster", "slower"),
        "rows called faster or slower": dict(Counter(row["id"] for row in wrong)),
        "share called same": _share(found, "same"),
        "share called inconclusive": _share(found, "inconclusive"),
        "seconds per verdict on a row": (time.monotonic() - started) / max(1, len(found) - before),
    }
    for metric in ("stream", "device", "wall"):
        results = [row["metrics"][metric] for row in found if "outcome" in row["metrics"].get(metric, {})]
        if results:
            figures[f"{metric}: number called faster or slower"] = sum(
                r["outcome"] in ("faster", "slower") for r in results
            )
            figures[f"{metric}: median noise band"] = statistics.median(r["noise_band"] for r in results)
    _note(folder, "A/A", figures)


@app.command()
def injected(repeats: int = 1, every: int = 1, folder: Out = DEFAULT_OUT) -> None:
    """Check that a known slowdown of the kernels is detected and a known speedup is reported correctly."""
    task = write_task(folder, "device")
    long_rows, short_rows = naps_between(20, 1000, every), naps_between(0, 10, every)
    plans = [
        (
            folder / "slow_share",
            napping(folder, "three_percent_slower", 1.03, 0.03 * AFTER_NAP_NS),
            "steady",
            long_rows,
        ),
        (folder / "slow_tail", napping(folder, "half_a_microsecond_slower", 1.0, 500), "steady", short_rows),
        (folder / "fast", napping(folder, "as_fast_as_steady", 1.0, 0), "half_again", long_rows),
    ]
    for ledger, candidate, baseline, pattern in plans:
        wanted = repeats * len(pattern.split(","))
        while len(_rows(ledger, task)) < wanted:
            _judge(task=str(task), candidate=candidate, baseline=baseline, rows=pattern, ledger=ledger, census=False)
    share, tail, sped = (_rows(ledger, task) for ledger, *_ in plans)
    ratios = [(row["metrics"]["device"]["ratio"], _true_speedup(row)) for row in sped]
    _note(
        folder,
        "injected differences",
        {
            "rows of 20 us or more, with a candidate that is 3 % slower": len(share),
            "share of these called slower": _share(share, "slower"),
            "outcomes of these": dict(Counter(row["verdict"] for row in share)),
            "rows under 10 us, with a candidate that is 0.5 us slower": len(tail),
            "share of these under 10 us called slower": _share(tail, "slower"),
            "outcomes under 10 us": dict(Counter(row["verdict"] for row in tail)),
            "rows with a baseline that waits 1.5 times as long": len(sped),
            "share of these called faster": _share(sped, "faster"),
            "reported speedup divided by true speedup, minimum": min(r / true for r, true in ratios),
            "reported speedup divided by true speedup, maximum": max(r / true for r, true in ratios),
            "share with a reported speedup within 2 % of the true one": sum(
                abs(r / true - 1) <= 0.02 for r, true in ratios
            )
            / len(ratios),
        },
    )


def _true_speedup(row: dict[str, Any]) -> float:
    """Return the injected difference: half the nap over the candidate's time (the nap and the kernel after it)."""
    nap = float(row["id"].removeprefix("nap_").removesuffix("ns")) / 1e3
    return 1 + 0.5 * nap / row["metrics"]["device"]["candidate_us"]


@contextlib.contextmanager
def two_of(task: Task, row: Workload) -> Iterator[WorkerGroup]:
    """Run the same baseline twice, without a judgement."""
    from kernwright.judge.process.scratch import scratch_folder
    from kernwright.judge.record.sample import SideName

    device = find_device("cuda")
    names: tuple[SideName, ...] = ("baseline", "again")
    with scratch_folder() as scratch, apart_from(device.worker_processor()), keep_processor_awake(device):
        device.begin((row,), scratch / "judge")
        sides = {name: baseline_spec(find_baseline(task, "steady"), task, scratch / name) for name in names}
        group = WorkerGroup(sides, 1, device)
        try:
            yield group
        finally:
            group.dismiss()


@app.command()
def clock(folder: Out = DEFAULT_OUT, repeats: int = 15) -> None:
    """Compare the judge's clock with events that the worker records inside a block of graph replays. The time that a
    twin's block takes beyond its calls is subtracted. Blocks take 20 ms or less; in shorter ones the subtracted part
    weighs more."""
    task = find_task(str(write_task(folder, "device")))
    (row,) = task.select(f"nap_{TWENTY_US}ns")
    figures: dict[str, Any] = {}
    with two_of(task, row) as group:
        for block_ms in (20.0, 5.0, 2.0, 1.0, 0.4):
            found = clock_against_events(group, group.device, task.op_of(row), row, block_ms, repeats)
            figures |= {f"{name}, blocks of {block_ms:g} ms": figure for name, figure in found.items()}
    _note(folder, "clock", figures)


@app.command()
def alone(folder: Out = DEFAULT_OUT, blocks: int = 20, calls: int = 11) -> None:
    """Show which parts of a single call take time, and where its noise comes from."""
    task = find_task(str(write_task(folder, "device")))
    (row,) = task.select(f"nap_{TWENTY_US}ns")
    with two_of(task, row) as group:
        parts = calls_by_themselves(group, group.device, task.op_of(row), row, blocks=blocks, calls=calls)
    # One entry per call, because the figures would hide two kinds of calls.
    (folder / "alone.json").write_text(json.dumps(parts))
    _note(folder, "alone", noise_of(parts))


@app.command()
def spread(folder: Out = DEFAULT_OUT, lengths: str = "2.5,5,10", every: int = 4) -> None:
    """Show how much blocks of a side differ, by metric and length. Blocks that are too short cost more rounds than they
    save."""
    figures: dict[str, Any] = {}
    for length in lengths.split(","):
        own = folder / f"spread_{length}"
        task = write_task(own, "stream", f"gpu_block_ms = {float(length)}\nmax_rounds = 2\n")
        verdict = _judge(task=str(task), candidate=None, baseline="steady", against_itself=True,
                         rows=naps_between(0, 1000, every), ledger=own / "ledger", census=False)  # fmt: skip
        for metric, kind, value in spreads(own / "ledger", verdict):
            figures[f"{metric}, {kind}, blocks of {length} ms: spread of a block, %"] = value
    _note(folder, "spread", figures)


class Stopwatch:
    """Adds up the time that a judgement spends on each row, from the end of the previous row."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self._since = 0.0

    def phase(self, what: str, steps: int) -> None:
        self._since = time.monotonic()

    def step(self, note: str) -> None:
        self.seconds[note] += time.monotonic() - self._since  # type: ignore[assignment]
        self._since = time.monotonic()


@app.command()
def row(
    folder: Out = DEFAULT_OUT,
    pattern: str = "plain_s7904_d4096_row-bf16",
    before: str = "plain_s1004_d4096_row-bf16",
    repeats: int = 3,
) -> None:
    """Measure the seconds that a real row adds to a judgement with the default policy: correctness, all metrics,
    rounds. The previous row has already loaded and compiled the shared parts in every round. Contenders are the shipped
    ops, built before, and a Triton candidate, which is compiled again for neighbouring sizes."""
    triton = Path(__file__).resolve().parents[1] / "examples" / "candidates" / "fused_triton"
    sides: dict[str, dict[str, Any]] = {
        "kernel built beforehand": {"candidate": None, "contender": "kernwright"},
        "kernel compiled for each neighbouring size": {"candidate": triton},
    }
    figures: dict[str, Any] = {"row": pattern}
    for name, side in sides.items():
        seconds = []
        for _ in range(repeats):
            watch = Stopwatch()
            request = JudgeRequest(
                task="norm_scale_shift", rows=f"{before},{pattern}", device="cuda", ledger=folder / "row",
                wait_s=600.0, census=False, **side,
            )  # fmt: skip
            verdict = judge(request, watch)
            seconds.append(watch.seconds[pattern])
        (judged,) = [row for row in verdict.rows if row.id == pattern]
        figures |= {
            f"{name}: seconds for the row, median": statistics.median(seconds),
            f"{name}: seconds for the row, each repeat": [round(value, 2) for value in seconds],
            f"{name}: time of the kernel, us": judged.metrics["device"].model_dump().get("candidate_us"),
            f"{name}: verdict": judged.verdict,
        }
    _note(folder, "row", figures)


@app.command()
def faults(times: int = 20, honest_every: int = 5, folder: Out = DEFAULT_OUT) -> None:
    """Judge a candidate that breaks its context, and sometimes then an honest one that is a third faster than its
    baseline. The first must be `failed` and the second `faster`."""
    task = write_task(folder, "device")
    honest = napping(folder, "honest", 1.0, 0.0)
    figures: dict[str, Any] = {}
    for name, source in FAULTS.items():
        faulty = write_candidate(folder, name.replace(" ", "_"), source)
        ledger = folder / "faults" / faulty.name
        fields = {"task": str(task), "baseline": "half_again", "rows": f"nap_{TWENTY_US}ns", "ledger": ledger,
                  "census": False, "deadline_s": 1.5}  # fmt: skip
        for number in range(1, times + 1):
            if len(_verdicts(ledger, task, faulty.name)) < number:
                _judge(candidate=faulty, **fields)
            due = -(-number // honest_every) if number == times else number // honest_every
            if len(_verdicts(ledger, task, honest.name)) < due:
                _judge(candidate=honest, **fields)
            err.print(f"{name}: {number} of {times}", highlight=False)
        found = [body["rows"][0] for body in _verdicts(ledger, task, faulty.name)]
        after = [body["rows"][0] for body in _verdicts(ledger, task, honest.name)]
        figures |= {
            name: dict(Counter(row["verdict"] for row in found)),
            f"honest candidate after {name}": dict(Counter(row["verdict"] for row in after)),
            f"reasons given for {name}": dict(Counter(row["reasons"][0][:90] for row in found).most_common(2)),
        }
    _note(folder, "faults", figures)


@app.command()
def short(folder: Out = DEFAULT_OUT) -> None:
    """Run a little of everything."""
    clock(folder=folder)
    row(folder=folder, repeats=1)
    faults(folder=folder, times=1)
    injected(folder=folder, every=12)
    aa(folder=folder, verdicts=16, rows=naps_between(0, 1000, 24))


COMMANDS = {
    "A/A": "aa", "injected differences": "injected", "clock": "clock", "spread": "spread", "alone": "alone",
    "row": "row", "faults": "faults",
}  # fmt: skip


@app.command("page")
def write_page(folder: Out = DEFAULT_OUT, target: Path = Path("docs/figures_gpu.md")) -> None:
    """Write the recorded figures as a page."""
    page(folder, target, "Figures of the judge on a GPU", "benchmarks/bench_judge_gpu.py", COMMANDS)


if __name__ == "__main__":
    sys.exit(app())
