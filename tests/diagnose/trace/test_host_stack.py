"""Stacks of a thread against a naive twin, and the frame that is shown to a reader."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kernwright.diagnose.trace.host_stack import HostThread, Interned

Range = tuple[float, float]


def nested(start: int, length: int, draw: st.DrawFn) -> list[Range]:
    """Return ranges that nest, as calls of one thread do."""
    ranges = [(float(start), float(length))]
    position = start
    while length > 2 and draw(st.booleans()):
        inner = draw(st.integers(1, max(1, length // 2)))
        if position + inner > start + length:
            break
        ranges += nested(position, inner, draw)
        position += inner + draw(st.integers(0, 2))
    return ranges


@st.composite
def threads(draw: st.DrawFn) -> list[Range]:
    return nested(0, 40, draw) + nested(45, 20, draw)


def naive(ranges: list[Range], time: float) -> list[Range]:
    """Return the ranges that are open at a time, outermost first, by looking at all of them."""
    inside = [(start, length) for start, length in ranges if start <= time < start + length]
    return sorted(inside, key=lambda found: (found[0], -found[1]))


@settings(max_examples=60, deadline=None)
@given(threads(), st.lists(st.floats(-1, 70, allow_nan=False), max_size=20), st.randoms())
def test_stacks_are_the_ranges_that_are_open(ranges: list[Range], times: list[float], random: object) -> None:
    names = Interned()
    thread = HostThread(("1", "1"), names)
    shuffled = list(ranges)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    for start, length in shuffled:
        thread.add_frame(names.number("f"), start, length)
    found = [[(e.start_us, e.duration_us) for e in stack.entries] for stack in thread.stacks_at(times)]
    # A range that ends exactly at the time may count as open: profilers round times.
    for stack, time in zip(found, times, strict=True):
        assert [r for r in stack if r[0] + r[1] != time] == naive(ranges, time)


def stack_of(*frames: str) -> HostThread:
    names = Interned()
    thread = HostThread(("1", "1"), names)
    for depth, frame in enumerate(frames):
        thread.add_frame(names.number(frame), float(depth), 100.0 - 2 * depth)
    return thread


def test_the_location_is_the_innermost_frame_outside_of_torch() -> None:
    thread = stack_of(
        "run.py(3): <module>",
        "nn.Module: Block_0",
        "/usr/lib/python3/site-packages/diffusers/models/block.py(40): forward",
        "torch/nn/modules/module.py(1790): _call_impl",
        "<built-in method linear of type object at 0x1>",
    )
    (stack,) = thread.stacks_at([20.0])
    assert stack.location == "/usr/lib/python3/site-packages/diffusers/models/block.py(40): forward"
    assert stack.modules == ["Block_0"]


def test_a_frame_of_torch_is_better_than_none() -> None:
    (stack,) = stack_of("torch/nn/modules/linear.py(5): forward").stacks_at([20.0])
    assert stack.location == "torch/nn/modules/linear.py(5): forward"


def test_a_thread_without_ranges_has_empty_stacks() -> None:
    (stack,) = HostThread(("1", "1"), Interned()).stacks_at([1.0])
    assert stack.entries == ()
    assert stack.location is None
