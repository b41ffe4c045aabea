"""Block noise: what lies around a block's calls on a GPU, and how far one block lies from another like it."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator
from pathlib import Path

from naps import LAUNCH_NS, NAPS_NS, TWENTY_US

from kernwright.campaign.blobs import BlobStore
from kernwright.judge.device import Device
from kernwright.judge.overhead import Overhead
from kernwright.judge.sides import Crew
from kernwright.judge.statistics import spread
from kernwright.judge.timing import warm_up
from kernwright.judge.verdict import Verdict
from kernwright.ops.definition import Op
from kernwright.tasks.policy import METRICS
from kernwright.tasks.workload import Workload


def clock_against_events(
    crew: Crew, device: Device, op: Op, row: Workload, block_ms: float, repeats: int
) -> dict[str, float]:
    calls = round(block_ms * 1e6 / TWENTY_US)
    sessions = {name: crew.open(name, op, row, calls) for name in crew.sides}
    for session in sessions.values():
        session.open_loop()
        session.begin("device")
        warm_up(session, device.pool(row, 1), "device")
    overhead = Overhead.of(sessions["again"], "device", calls)
    session = sessions["baseline"]
    shares, around, until_still, securing = [], [], [], []
    for _ in range(repeats):
        session.prepare()
        session.ready()
        block, _ = session.run(range(calls), with_python=False)
        events = session.event_ns()
        shares.append(overhead.taken_off(block.elapsed_ns) / events)
        around.append(block.elapsed_ns - events)
        until_still.append(block.running_ns - events)
        securing.append(block.elapsed_ns - block.running_ns)
    for session in sessions.values():
        session.close()
    return {
        "judge's clock over events, median": statistics.median(shares),
        "least": min(shares),
        "most": max(shares),
        "an empty block, us": overhead.empty_ns / 1e3,
        "more around calls, us": overhead.more_ns / 1e3,
        "what lies around the events spreads by, us": spread(around) / 1e3,
        "of it until the worker stands still, us": spread(until_still) / 1e3,
        "of it while its outputs are secured, us": spread(securing) / 1e3,
    }


def spreads(ledger: Path, verdict: Verdict) -> Iterator[tuple[str, str, float]]:
    """Of rows that their launches bound, and of rows that their kernels bound. Within a round: rounds have workers of
    their own."""
    blob = next(row.samples for row in verdict.rows if row.samples)
    samples = json.loads(BlobStore(ledger / "blobs").read(blob.removeprefix("blob:")))
    short = {f"nap_{ns}ns" for ns in NAPS_NS if ns < LAUNCH_NS}
    for metric in METRICS:
        for kind, is_short in (("rows that launches bound", True), ("rows that kernels bound", False)):
            away = []
            for name, quads in samples.items():
                if (name in short) is is_short:
                    halves = [quad["ns_per_call"] for quad in quads if quad["metric"] == metric]
                    away += [math.log(ns["baseline"][n] / ns["again"][n]) for ns in halves for n in (0, 1)]
            yield metric, kind, 100 * 1.4826 * statistics.median(map(abs, away)) / math.sqrt(2)
