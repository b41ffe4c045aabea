"""Sizing: how many calls a row's blocks have, found out before anything is measured."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from kernwright.core.op import Op
from kernwright.judge.contest.faults import SideFault, WrongOutput
from kernwright.judge.contest.pair import Pair, SideName
from kernwright.judge.contest.worker_group import WorkerGroup
from kernwright.judge.device.device import Device
from kernwright.judge.numerics.contents import EagerErrors, Pool
from kernwright.judge.process.faults import WorkerCheated, WorkerFailed
from kernwright.judge.process.worker_process import CALL_DEADLINE_S
from kernwright.judge.record.statistics import spread
from kernwright.judge.rounds.timing import WANDERING, verify, warm_up
from kernwright.judge.session.session import OutputsMoved, Session, WrongBehaviour, bytes_of_outputs, bytes_per_slot
from kernwright.tasks.policy import Metric, TimingPolicy
from kernwright.tasks.workload import Workload

ALIKE = 1.25  # the longer of two lengths over the shorter, up to where both count as one
UNREST_BLOCKS = 9  # of no calls, whose spread shows how restless the machine is
UNREST_SHARE = 0.005  # of a block, that it may move a block by: 10 us on a quiet host with a GPU, 50 on others
MOST_LONGER = 4.0  # times the length that the policy asks for
COARSE_BLOCKS = 3  # to size blocks by, of which the best one counts
MOST_LOOPED = 512  # calls of a graph: capturing more takes longer than all that is timed


@dataclass(frozen=True)
class BlockSizes:
    """One side's slots of a row, and calls of a `stream` block."""

    slots: int
    stream_calls: int
    most: int = 2**62  # slots that there is memory for
    calm: float = 1.0  # times as long, and this machine's unrest would hardly move a block
    longer: float = 1.0  # times as long as they were at first, these are

    def at_least(self, other: BlockSizes | None) -> BlockSizes:
        """For whoever shares the side."""
        if other is None:
            return self
        return BlockSizes(max(self.slots, other.slots), max(self.stream_calls, other.stream_calls))

    def calmed(self) -> BlockSizes:
        """As long as this machine's unrest asks for, and memory allows."""
        slots, calls = (max(own, min(self.most, round(self.calm * own))) for own in (self.slots, self.stream_calls))
        longer = min(slots / self.slots, calls / self.stream_calls)
        return replace(self, slots=slots, stream_calls=calls, calm=1.0, longer=longer)


def block_sizes(
    group: WorkerGroup,
    op: Op,
    row: Workload,
    pool: Pool,
    policy: TimingPolicy,
    pairs: Sequence[Pair],
    eager: EagerErrors,
    trusted: Collection[SideName],
    published: Collection[SideName] = (),
) -> dict[SideName, BlockSizes]:
    """Of a length that each side can be measured with. A call's kernels may take a fraction of what its launches do, so
    `device` can need more of them.

    A side that is not trusted must be right here too: one that seems fast has more calls than its baseline, and what
    every block takes once, such as finding its caches cold, then weighs less on it. Nor has it a say in what a block of
    no calls takes: one that dawdles there would seem fast too.
    """
    seconds: dict[Metric, dict[SideName, float]] = {"stream": {}, "device": {}}
    times = CoarseTimes(pool)
    unrest_s: float | None = None
    device = group.device
    for side in dict.fromkeys([*(pair.baseline for pair in pairs), *(pair.candidate for pair in pairs)]):
        session = group.open(side, op, row, device.probe_slots(row))
        contract = None if side in trusted else eager
        for other in group.workers.keys() - trusted:  # nobody is at work beside who is measured here
            _refuse_company(group, other)
        try:
            if side in published:
                first_call(session, pool)
            seconds["stream"][side] = times.of_call(session, "stream", contract)
            if unrest_s is None:  # a baseline's, as they come first: no candidate has a say in how long blocks are
                unrest_s = spread([block.elapsed_ns for block in session.run_nothing(UNREST_BLOCKS)]) / 1e9
            if session.loop_takes_all_slots and session.open_loop() is None:
                seconds["device"][side] = times.of_call(session, "device", contract)
        except (WorkerFailed, WorkerCheated, WrongBehaviour, WrongOutput) as cause:
            raise SideFault(side, cause) from cause
        finally:
            session.close()
    block_ms = device.block_ms(policy)
    calm = max(1.0, 1e3 * (unrest_s or 0.0) / UNREST_SHARE / block_ms)
    streams = calls_of(row, lengths_of_calls(seconds["stream"], pairs), device, block_ms, device.most_slots)
    looped = [pair for pair in pairs if {pair.baseline, pair.candidate} <= seconds["device"].keys()]
    loops = calls_of(row, lengths_of_calls(seconds["device"], looped), device, block_ms, MOST_LOOPED)
    most = min(MOST_LOOPED if loops else device.most_slots, most_that_fit(row, device))
    return {
        side: BlockSizes(max(calls, loops.get(side, 0)), calls, most, min(calm, MOST_LONGER))
        for side, calls in streams.items()
    }


def _refuse_company(group: WorkerGroup, side: SideName) -> None:
    try:
        group.workers[side].refuse_company()
    except (WorkerFailed, WorkerCheated) as cause:
        raise SideFault(side, cause) from cause


def lengths_of_calls(seconds: Mapping[SideName, float], pairs: Sequence[Pair]) -> dict[SideName, float]:
    """By which each side's blocks are sized. A baseline's own: a chain of many kernels takes several times as long as
    what it is held against, and need not be called as often. A contender's lies between its own and its baseline's; of
    several baselines the fastest counts, so that no pair has fewer calls than it would have by itself. A contender may
    ask for more calls a block by being fast, never for fewer by being slow just now.

    Sides of a pair that are nearly alike have the same: what a block takes once is a percent of ten calls, and more of
    nine.
    """
    lengths: dict[SideName, float] = {}
    for pair in pairs:
        baseline_s = seconds[pair.baseline]
        between_s = math.sqrt(baseline_s * min(baseline_s, seconds[pair.candidate]))
        own_s = between_s if baseline_s <= ALIKE * between_s else baseline_s
        for side, length in (*((side, own_s) for side in pair.baselines), (pair.candidate, between_s)):
            lengths[side] = min(length, lengths.get(side, math.inf))
    before: dict[SideName, float] = {}
    while before != lengths:  # a side that stands in several pairs hands its length on
        before = dict(lengths)
        for pair in pairs:
            shorter, longer = sorted((lengths[pair.baseline], lengths[pair.candidate]))
            if longer <= ALIKE * shorter:
                lengths |= dict.fromkeys(pair.roles, shorter)
    return lengths


def first_call(session: Session, pool: Pool) -> None:
    """A published kernel may be compiled in its first call, which takes longer than a block may."""
    session.prepare()
    session.fill(0, pool.draw(session.op, session.row))
    session.check_call(0, CALL_DEADLINE_S)


def calls_of(
    row: Workload, lengths: Mapping[SideName, float], device: Device, block_ms: float, most: int
) -> dict[SideName, int]:
    fit = most_that_fit(row, device)
    return {side: slots_for(call_s, block_ms, min(fit, most)) for side, call_s in lengths.items()}


def most_that_fit(row: Workload, device: Device) -> int:
    return device.block_bytes(row) // max(1, bytes_per_slot(row, "returns"), bytes_of_outputs(row))


def slots_for(call_s: float, block_ms: float, most: int) -> int:
    """As many distinct slots as one block calls: each is called once, so a block of N calls proves N executions."""
    return max(2, min(math.ceil(block_ms / 1e3 / max(call_s, 1e-7)), most))


class CoarseTimes:
    """Of calls, to size blocks by. What a block of no calls takes is asked of the first side that there is, which is a
    baseline.

    The best of some blocks counts, with calls and without: on a busy machine a typical empty block may take longer than
    the best call, and a call that seems to take no time at all asks for as many slots as there can be.
    """

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self._empty_ns: dict[Metric, float] = {}

    def of_call(self, session: Session, metric: Metric = "stream", contract: EagerErrors | None = None) -> float:
        """Seconds. Warms the side up. `contract`: what its outputs are held to, where they are looked at."""
        session.begin(metric)
        warm_up(session, self.pool, metric)
        best = math.inf
        for attempt in range(COARSE_BLOCKS):
            order = range(session.slots) if session.outputs_may_move else [attempt % session.slots]
            with contextlib.suppress(OutputsMoved):
                best = min(best, _block_ns(session, self.pool, metric, order, contract))
        if math.isinf(best):
            raise WorkerFailed(WANDERING)
        if metric not in self._empty_ns:
            self._empty_ns[metric] = min(block.elapsed_ns for block in session.run_nothing(COARSE_BLOCKS))
        return max(best - self._empty_ns[metric], len(order) * 1e3) / len(order) / 1e9


def _block_ns(
    session: Session, pool: Pool, metric: Metric, order: Sequence[int], contract: EagerErrors | None
) -> float:
    """Of one block; on contents of each call's own where its outputs are looked at."""
    contents = None if contract is None else pool.contents(session.op, session.row, len(order), contract)
    session.prepare()
    if contents is not None:
        contents.place(session, order)
    elif session.outputs_may_move:
        session.fill_all(pool.draw(session.op, session.row))
    else:
        session.fill(order[0], pool.draw(session.op, session.row))
    session.ready()
    try:
        block, left = session.run(order, with_python=metric != "device")
    except OutputsMoved as moved:
        if contents is not None:  # who is wrong could have a block not counted
            verify(session, moved.block, contents.problem(moved.left))
        raise
    if contents is not None:
        verify(session, block, contents.problem(left))
    return block.elapsed_ns
