"""Window: which bytes of a side's memory are copied before the clock stops. As many of every side, from a place of its
own on."""

from __future__ import annotations

Span = tuple[int, int]  # from the first byte to the one behind the last
PAGE = 2**21  # windows begin and end at whole ones
GROWTH = 1.5  # times as much as was seen so far: outputs that wander must not take a block for each step, up or down


def holds(window: Span, outputs: Span) -> bool:
    return is_empty(outputs) or (window[0] <= outputs[0] and outputs[1] <= window[1])


def is_empty(span: Span) -> bool:
    return span[0] >= span[1]


def claimed(seen: Span | None, outputs: Span, size: int) -> Span:
    """What was seen of a side's outputs, and more in the direction that they have moved in."""
    if seen is None:
        return outputs
    low, high = min(seen[0], outputs[0]), max(seen[1], outputs[1])
    more = int((GROWTH - 1) * (high - low))
    return (max(0, low - more) if low < seen[0] else low, min(size, high + more) if high > seen[1] else high)


def longer(length: int, seen: Span, room: int) -> int:
    """The length that all sides' windows get so that one of them holds what was seen there, and `room` bytes more."""
    return max(length, _up(seen[1] + room) - _down(seen[0]))


def window_of(seen: Span | None, length: int, size: int) -> Span:
    """From the first byte that was seen on; further down where the memory ends before the window does."""
    if seen is None:
        return 0, min(length, size)
    start = max(0, min(_down(seen[0]), _down(size - length)))
    return start, min(start + length, size)


def _down(place: int) -> int:
    return place // PAGE * PAGE


def _up(place: int) -> int:
    return -(-place // PAGE) * PAGE
