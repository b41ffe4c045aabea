"""Noise of blocks: the time around a block's calls on a GPU, and the differences between equal blocks."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from naps import LAUNCH_NS, NAPS_NS, TWENTY_US

from kernwright.core.op import Op
from kernwright.judge.contest.worker_group import WorkerGroup
from kernwright.judge.device.cuda.awake_calls import AwakeCalls
from kernwright.judge.device.cuda.session import CudaSession
from kernwright.judge.device.device import Device
from kernwright.judge.process.block import Block
from kernwright.judge.record.round_record import recorded_samples
from kernwright.judge.record.statistics import spread
from kernwright.judge.record.verdict import Verdict
from kernwright.judge.rounds.overhead import Overhead
from kernwright.judge.rounds.timing import warm_up
from kernwright.ledger.ledger import Ledger
from kernwright.tasks.policy import METRICS
from kernwright.tasks.workload import Workload


def clock_against_events(
    group: WorkerGroup, device: Device, op: Op, row: Workload, block_ms: float, repeats: int
) -> dict[str, float]:
    calls = round(block_ms * 1e6 / TWENTY_US)
    sessions = {name: group.open(name, op, row, calls) for name in group.specs}
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
        "judge's clock divided by CUDA events, median": statistics.median(shares),
        "judge's clock divided by CUDA events, minimum": min(shares),
        "judge's clock divided by CUDA events, maximum": max(shares),
        "time of an empty block, us": overhead.empty_ns / 1e3,
        "additional overhead of a block with calls, us": overhead.more_ns / 1e3,
        "spread of the time outside the events, us": spread(around) / 1e3,
        "spread of the time until the worker is stopped, us": spread(until_still) / 1e3,
        "spread of the time to copy the outputs, us": spread(securing) / 1e3,
    }


class TimedCalls(AwakeCalls):
    """Single calls with the time of the upload, of the exchange with the worker and of the download."""

    def __init__(self, session: CudaSession) -> None:
        super().__init__(session)
        self.bringing_ns: list[int] = []
        self.looking_ns: list[int] = []

    def block(
        self,
        order: Sequence[int],
        upload: Callable[[], None] | None = None,
        download: Callable[[Sequence[int]], None] | None = None,
    ) -> Block:
        return super().block(
            order,
            None if upload is None else lambda: self._timed(self.bringing_ns, upload),
            None if download is None else lambda pointers: self._timed(self.looking_ns, lambda: download(pointers)),
        )

    def _timed(self, kept: list[int], work: Callable[[], None]) -> None:
        start = time.perf_counter_ns()
        work()
        kept.append(time.perf_counter_ns() - start)

    @property
    def exchanging_ns(self) -> list[int]:
        parts = zip(self.blocks, self.bringing_ns, self.looking_ns, strict=True)
        return [block.elapsed_ns - bringing - looking for block, bringing, looking in parts]


Parts = dict[str, list[list[int]]]  # nanoseconds by purpose, for each block and each call


def calls_by_themselves(group: WorkerGroup, device: Device, op: Op, row: Workload, blocks: int, calls: int) -> Parts:
    """Run blocks of `wall` on two workers in turn. Every other block has no calls."""
    sessions = {name: group.open(name, op, row, calls) for name in group.specs}
    contents = device.pool(row, 1).draw(op, row)
    parts: Parts = {}
    for session in sessions.values():
        assert isinstance(session, CudaSession)
        session.begin("wall")
        warm_up(session, device.pool(row, 1), "wall")
    for number in range(2 * blocks):
        for session in sessions.values():
            assert isinstance(session, CudaSession)
            kind = "a call" if number % 2 else "no call"
            session.prepare()
            session.fill_all(contents)
            place = session.arena.bytes[: session.arena.layout.pitch]
            (image,) = session.keeper.staging.keep([place])
            session.ready()
            timed = TimedCalls(session)
            timed.block([])
            for slot in range(calls):
                timed.call(slot if number % 2 else None, image, place)
            session.worker.stand_still()
            elapsed = [block.elapsed_ns for block in timed.blocks]
            found = {"": elapsed, ", inputs": timed.bringing_ns, ", exchange": timed.exchanging_ns,
                     ", look": timed.looking_ns}  # fmt: skip
            for name, values in found.items():
                parts.setdefault(kind + name, []).append(values)
    for session in sessions.values():
        session.close()
    return parts


def noise_of(parts: Parts) -> dict[str, float]:
    """Return how much the calls of one block differ, and how much the median calls of successive blocks differ."""
    figures: dict[str, float] = {}
    for name, per_block in parts.items():
        middles = [statistics.median(values) for values in per_block]
        figures |= {
            f"{name}, us": statistics.median(middles) / 1e3,
            f"{name}: spread within a block, us": statistics.median(spread(values) for values in per_block) / 1e3,
            f"{name}: spread of blocks' middles, us": spread(middles) / 1e3,
        }
    return figures


def spreads(ledger: Path, verdict: Verdict) -> Iterator[tuple[str, str, float]]:
    """Return the spread for rows that are limited by their launches, and for rows that are limited by their kernels. It
    is measured within a round, because each round has its own workers."""
    book = Ledger(ledger)
    samples = recorded_samples(book, book.records(book.runs()[-1]), verdict)
    short = {f"nap_{ns}ns" for ns in NAPS_NS if ns < LAUNCH_NS}
    for metric in METRICS:
        for kind, is_short in (("rows limited by launches", True), ("rows limited by kernels", False)):
            away = []
            for name, quads in samples.items():
                if (name in short) is is_short:
                    halves = [quad.ns_per_call for quad in quads if quad.metric == metric]
                    away += [math.log(ns["baseline"][n] / ns["again"][n]) for ns in halves for n in (0, 1)]
            yield metric, kind, 100 * 1.4826 * statistics.median(map(abs, away)) / math.sqrt(2)
