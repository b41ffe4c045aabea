"""Idle time of the GPU: gaps against a naive twin, and the host code that is blamed."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from kernwright.diagnose.idle_time import PYTHON, gaps_of, waits_of
from kernwright.diagnose.trace.host_stack import HostThread, Interned
from kernwright.diagnose.trace.trace import GpuEvent, Launch, Trace


def event(start: float, duration: float, launch: Launch | None = None, stream: int = 7) -> GpuEvent:
    return GpuEvent(
        kind="kernel", name="k", start_us=start, duration_us=duration, device=0, stream=stream, launch=launch
    )


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 12)), min_size=1, max_size=12))
def test_gaps_are_the_microseconds_without_work(spans: list[tuple[int, int]]) -> None:
    events = [event(float(start), float(length)) for start, length in sorted(spans)]
    busy = {tick for start, length in spans for tick in range(start, start + length)}
    idle = set(range(min(busy), max(busy))) - busy
    found = [(gap.start_us, gap.end_us) for gap in gaps_of(events)]
    assert {tick for start, end in found for tick in range(int(start), int(end))} == idle


def traced(ops: list[tuple[str, float, float]], launches: list[tuple[float, float, float]]) -> Trace:
    """Return a trace of one thread: operators, and (launch, start, duration) of kernels."""
    names = Interned()
    thread = HostThread(("1", "1"), names)
    for name, start, duration in ops:
        thread.add_op(names.number(name), start, duration, ())
    stacks = thread.stacks_at([launched for launched, _, _ in launches])
    gpu = [
        event(start, duration, Launch("cudaLaunchKernel", launched, 1.0, thread.key, stack))
        for (launched, start, duration), stack in zip(launches, stacks, strict=True)
    ]
    return Trace(path=Path("t"), gpu=gpu, launches=[], annotations=[], threads=[thread])


def test_an_operator_that_is_slow_once_is_named_with_its_slow_calls() -> None:
    ops = [("aten::plan", 1000.0 * n, 20.0) for n in range(5)] + [("aten::plan", 5000.0, 4000.0)]
    launches = [(1000.0 * n + 10, 1000.0 * n + 12, 985.0) for n in range(5)] + [(8990.0, 8995.0, 5.0)]
    worst = waits_of(traced(ops, launches))[0]
    assert worst.op == "aten::plan"
    assert worst.waited_us > 3900
    assert [call.duration_us for call in worst.outliers] == [4000.0]
    assert worst.typical_us == 20.0


def test_time_between_operators_is_python() -> None:
    worst = waits_of(traced([("aten::mul", 0.0, 10.0), ("aten::mul", 500.0, 10.0)], [(5, 6, 4), (505, 506, 4)]))[0]
    assert worst.op == PYTHON
    assert 480 < worst.waited_us <= 491


def test_a_gap_that_the_host_did_not_cause_is_not_waited_for() -> None:
    assert waits_of(traced([("aten::mul", 0.0, 10.0)], [(5.0, 6.0, 4.0), (7.0, 500.0, 4.0)])) == []
