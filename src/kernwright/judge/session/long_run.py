"""LongRun: many more calls of one worker than timing needs, with a comparison of every output.

A side may be right for its first calls, or for all but every thousandth, and so pass everything that is timed. Here one
worker makes thousands of calls in a row on small rows, and as many as the time allows on large ones.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence

from kernwright.judge.numerics.contents import Contents, EagerErrors, Pool
from kernwright.judge.process.block import Block
from kernwright.judge.process.faults import WorkerFailed
from kernwright.judge.session.session import (
    Outputs,
    OutputsMoved,
    Session,
    bytes_of_outputs,
    bytes_per_slot,
    same_bytes,
)
from kernwright.tasks.workload import Workload

FEWEST_CALLS, MOST_CALLS = 6_000, 12_000  # the number is chosen secretly between them
ENOUGH_CALLS = 2_500  # a run that is slower than planned may take longer until it has made this many
PLANNED_S, MOST_S = 0.4, 1.0
SLOWER = 2.0  # a block counts with at most this multiple of the time of timed calls, so that no side ends its own run
BLOCK_COST_S = 1e-3  # further time of a block that counts: waking the worker, first use of new memory
MOST_EXCESS_S = 10.0  # a side fails if its calls take this much longer than the time that counts
BLOCKS_PER_DRAW = 8  # blocks on the same contents: drawing contents and oracles takes longer than most calls
BLOCK_S = 0.04  # intended length of a block in host memory
MOST_BLOCK_CALLS = 512
MOST_OUTPUT_BYTES = 2**25  # outputs of a block in host memory, which the judge copies


def slots_of_long_run(row: Workload, most: int, most_bytes: int) -> int:
    """Return the number of slots for at most `most` calls and `most_bytes` of inputs, and of outputs."""
    largest = max(1, bytes_per_slot(row, "returns"), bytes_of_outputs(row))
    return max(2, min(most, most_bytes // largest))


class LongRun:
    """Blocks of calls like those of `stream`, until a secret number of calls is reached or the time is used up.

    Contents are new in every eighth block and are held to the oracle. In the blocks between, the same contents come
    in other slots and in another order, so that memory which still holds an earlier output is wrong. In host memory,
    where oracles are slow, a block also calls each slot several times, unless calls change their inputs.

    `timed_call_s` is the side's time per call in timed blocks. Calls that take much longer than that here do not use
    up the time of the run. A side that spends many seconds in this way fails.
    """

    def __init__(
        self, session: Session, pool: Pool, rng: random.Random, eager: EagerErrors, timed_call_s: float
    ) -> None:
        self.session, self.pool, self.rng, self.eager = session, pool, rng, eager
        self.timed_call_s = timed_call_s
        self.calls = 0
        self._planned_calls = rng.randint(FEWEST_CALLS, MOST_CALLS)
        self._call_s = BLOCK_S  # time per call in the last block; at first each slot is called once
        self._worker_s = self._excess_s = 0.0
        self._started = time.monotonic(), time.process_time()
        self._known: dict[int, Outputs] = {}  # verified outputs in host memory, by content

    def blocks(self) -> Iterator[tuple[Block, str | None]]:
        """Run blocks. Yield each with the first problem of its outputs, or None."""
        self.session.begin("stream")
        while not self._is_over:
            self._known.clear()
            contents = self.pool.contents(self.session.op, self.session.row, self.session.slots, self.eager)
            for _ in range(BLOCKS_PER_DRAW):
                if not self._is_over:
                    yield self._block(contents)

    @property
    def _is_over(self) -> bool:
        is_late = self._spent_s > (PLANNED_S if self.calls >= ENOUGH_CALLS else MOST_S)
        return self.calls >= self._planned_calls or is_late

    @property
    def _spent_s(self) -> float:
        """The time so far, or the processor time of judge and worker if it is shorter because the machine is busy."""
        started, used = self._started
        return min(time.monotonic() - started - self._excess_s, time.process_time() - used + self._worker_s)

    def _count_time(self, block: Block, calls: int) -> None:
        """Add the time of a block to the time of the run, as far as timed calls would have taken it."""
        allowed_s = SLOWER * self.timed_call_s * calls + BLOCK_COST_S
        counted_s = min(block.processor_ns / 1e9, allowed_s)
        self._worker_s += counted_s
        self._call_s = counted_s / calls
        self._excess_s += max(0.0, (block.running_ns - block.waiting_ns) / 1e9 - allowed_s)
        if self._excess_s > MOST_EXCESS_S:
            raise WorkerFailed(
                f"in a run of {self.calls} calls, calls took {self._excess_s:.0f} s longer than timed calls,"
                f" which take {1e6 * self.timed_call_s:.3g} us each"
            )

    def _block(self, contents: Contents) -> tuple[Block, str | None]:
        session, most = self.session, self.session.slots
        count = most - self.rng.randrange(most // 4 + 1)
        first = self.rng.randrange(most - count + 1)
        slots = self.rng.sample(range(most), count)
        calls = [*range(count), *self._repeats(count)]  # numbers of contents, from `first` on
        session.prepare()
        contents.place(session, slots, first)
        session.save_image()
        session.finish_writes()
        try:
            block, left = session.run([slots[number] for number in calls])
        except OutputsMoved as moved:  # nothing is timed here, so the block counts
            block, left = moved.block, moved.outputs
        self.calls += len(calls)
        self._count_time(block, len(calls))
        if isinstance(left, list):
            problem = self._problem_in_host_memory(contents, left, [first + number for number in calls])
        else:
            problem = contents.problem(left, first)
        return block, f"in a run of {self.calls} calls: {problem.partition(': ')[2] or problem}" if problem else None

    def _repeats(self, count: int) -> list[int]:
        """Return the contents of further calls in the same block, in a secret order."""
        session = self.session
        if session.loop_takes_all_slots or session.changed_inputs:
            return []
        room = MOST_OUTPUT_BYTES // max(1, bytes_of_outputs(session.row))
        most = min(MOST_BLOCK_CALLS, room, int(BLOCK_S / max(self._call_s, 1e-7)))
        return [self.rng.randrange(count) for _ in range(most - count)]

    def _problem_in_host_memory(
        self, contents: Contents, left: Sequence[Outputs], numbers: Sequence[int]
    ) -> str | None:
        """Hold outputs to the oracle, except those with the bits of an output that was verified on the same inputs."""
        for number, outputs in zip(numbers, left, strict=True):
            known = self._known.get(number)
            if known is not None and all(same_bytes(value, known[name]) for name, value in outputs.items()):
                continue
            if problem := contents.problem([outputs], number):
                return problem
            self._known[number] = outputs
        return None
