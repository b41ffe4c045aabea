"""Sizing: the number of calls in a row's blocks, determined before anything is measured."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from kernwright.core.op import Op
from kernwright.judge.contest.faults import AttributedTo
from kernwright.judge.contest.pair import Pair
from kernwright.judge.contest.worker_group import WorkerGroup
from kernwright.judge.device.device import Device
from kernwright.judge.numerics.contents import EagerErrors, Pool
from kernwright.judge.process.faults import WorkerFailed
from kernwright.judge.process.worker_process import CALL_DEADLINE_S
from kernwright.judge.record.sample import SideName
from kernwright.judge.record.statistics import spread
from kernwright.judge.rounds.timing import WANDERING, verify, warm_up
from kernwright.judge.session.session import OutputsMoved, Session, bytes_of_outputs, bytes_per_slot
from kernwright.tasks.policy import Metric, TimingPolicy
from kernwright.tasks.workload import Workload

ALIKE = 1.25  # largest ratio of two call lengths that count as equal
JITTER_BLOCKS = 9  # empty blocks whose spread is the machine's jitter
JITTER_SHARE = 0.005  # tolerable jitter as a share of a block; it is 10 us on a quiet GPU host, 50 us on others
MOST_LONGER = 4.0  # largest factor on the block length of the policy
COARSE_BLOCKS = 3  # blocks used for sizing; the fastest counts
MOST_LOOPED = 512  # calls in a graph: capturing more takes longer than all timed blocks


@dataclass(frozen=True)
class BlockSizes:
    """The slots of one side on a row, and the calls in its `stream` block."""

    slots: int
    stream_calls: int
    most: int = 2**62  # slots that fit into memory
    calm: float = 1.0  # factor on the length at which this machine's jitter hardly matters
    longer: float = 1.0  # factor on the original length that these sizes have

    def at_least(self, other: BlockSizes | None) -> BlockSizes:
        """Return sizes that suffice for both users of a side."""
        if other is None:
            return self
        return BlockSizes(max(self.slots, other.slots), max(self.stream_calls, other.stream_calls))

    def calmed(self) -> BlockSizes:
        """Return sizes as long as the machine's jitter asks for and memory allows."""
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
    """Return block sizes at which each side can be measured.

    The kernels of a call may take a fraction of the time of its launches, so `device` can need more calls.

    An untrusted side must compute correctly here too: if it seems fast, its blocks have more calls than the baseline's,
    and the fixed costs of a block, such as cold caches, weigh less. An untrusted side does not influence the time of an
    empty block either: if it answered an empty block slowly, its calls would seem fast, too.
    """
    seconds: dict[Metric, dict[SideName, float]] = {"stream": {}, "device": {}}
    times = CoarseTimes(pool)
    jitter_s: float | None = None
    device = group.device
    for side in dict.fromkeys([*(pair.baseline for pair in pairs), *(pair.candidate for pair in pairs)]):
        session = group.open(side, op, row, device.probe_slots(row))
        contract = None if side in trusted else eager
        for other in group.workers.keys() - trusted:  # no other worker may run during a measurement
            _refuse_company(group, other)
        try:
            with AttributedTo(side):
                if side in published:
                    first_call(session, pool)
                seconds["stream"][side] = times.of_call(session, "stream", contract)
                if jitter_s is None:  # on a baseline, which comes first: no candidate influences it
                    jitter_s = spread([block.elapsed_ns for block in session.run_empty_blocks(JITTER_BLOCKS)]) / 1e9
                if session.loop_takes_all_slots and session.open_loop() is None:
                    seconds["device"][side] = times.of_call(session, "device", contract)
        finally:
            session.close()
    block_ms = device.block_ms(policy)
    calm = max(1.0, 1e3 * (jitter_s or 0.0) / JITTER_SHARE / block_ms)
    streams = calls_of(row, lengths_of_calls(seconds["stream"], pairs), device, block_ms, device.max_slots)
    looped = [pair for pair in pairs if {pair.baseline, pair.candidate} <= seconds["device"].keys()]
    loops = calls_of(row, lengths_of_calls(seconds["device"], looped), device, block_ms, MOST_LOOPED)
    most = min(MOST_LOOPED if loops else device.max_slots, most_that_fit(row, device))
    return {
        side: BlockSizes(max(calls, loops.get(side, 0)), calls, most, min(calm, MOST_LONGER))
        for side, calls in streams.items()
    }


def _refuse_company(group: WorkerGroup, side: SideName) -> None:
    with AttributedTo(side):
        group.workers[side].refuse_company()


def lengths_of_calls(seconds: Mapping[SideName, float], pairs: Sequence[Pair]) -> dict[SideName, float]:
    """Return the call length by which each side's blocks are sized.

    For a baseline, this is the length of its own call: a chain of many kernels takes several times as long as the
    contender and needs fewer calls. For a contender, it lies between the lengths of its own call and of its baseline's.
    Of several baselines the fastest counts, so that no pair has fewer calls than it would have alone. A fast contender
    gets more calls per block; a momentarily slow one does not get fewer.

    Sides of a pair with nearly equal lengths get the same one, because the fixed cost of a block weighs more on nine
    calls than on ten.
    """
    lengths: dict[SideName, float] = {}
    for pair in pairs:
        baseline_s = seconds[pair.baseline]
        between_s = math.sqrt(baseline_s * min(baseline_s, seconds[pair.candidate]))
        own_s = between_s if baseline_s <= ALIKE * between_s else baseline_s
        for side, length in (*((side, own_s) for side in pair.baselines), (pair.candidate, between_s)):
            lengths[side] = min(length, lengths.get(side, math.inf))
    before: dict[SideName, float] = {}
    while before != lengths:  # a side of several pairs passes its length on
        before = dict(lengths)
        for pair in pairs:
            shorter, longer = sorted((lengths[pair.baseline], lengths[pair.candidate]))
            if longer <= ALIKE * shorter:
                lengths |= dict.fromkeys(pair.roles, shorter)
    return lengths


def first_call(session: Session, pool: Pool) -> None:
    """Make one call with a long deadline: a published kernel may be compiled in its first call."""
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
    """Return the slots of a block. Each is called once, so that a block of N calls proves N executions."""
    return max(2, min(math.ceil(block_ms / 1e3 / max(call_s, 1e-7)), most))


class CoarseTimes:
    """Approximate call times for sizing. The first side, a baseline, shows the time of an empty block.

    The fastest of several blocks counts, with and without calls. On a busy machine a typical empty block may take
    longer than the fastest call, and a call that seems to take no time would ask for the largest number of slots.
    """

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self._empty_ns: dict[Metric, float] = {}

    def of_call(self, session: Session, metric: Metric = "stream", contract: EagerErrors | None = None) -> float:
        """Warm the side up and return the seconds of a call. With a `contract`, outputs are checked against it."""
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
            self._empty_ns[metric] = min(block.elapsed_ns for block in session.run_empty_blocks(COARSE_BLOCKS))
        return max(best - self._empty_ns[metric], len(order) * 1e3) / len(order) / 1e9


def _block_ns(
    session: Session, pool: Pool, metric: Metric, order: Sequence[int], contract: EagerErrors | None
) -> float:
    """Return the time of one block. Where outputs are checked, each call has its own contents."""
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
        if contents is not None:  # a wrong block must not escape by moving its outputs
            verify(session, moved.block, contents.problem(moved.outputs))
        raise
    if contents is not None:
        verify(session, block, contents.problem(left))
    return block.elapsed_ns
