"""Window: which bytes of a side's memory are copied before the clock stops. As many of every side, from a place of its
own on."""

from __future__ import annotations

Span = tuple[int, int]  # from the first byte to the one behind the last
PAGE = 2**21  # windows begin and end at whole ones
GROWTH = 1.5  # times as long as before, at least: outputs that wander must not take a block for each step


def holds(window: Span, outputs: Span) -> bool:
    return is_empty(outputs) or (window[0] <= outputs[0] and outputs[1] <= window[1])


def is_empty(span: Span) -> bool:
    return span[0] >= span[1]


def union(seen: Span | None, outputs: Span) -> Span:
    return outputs if seen is None else (min(seen[0], outputs[0]), max(seen[1], outputs[1]))


def longer(length: int, seen: Span, room: int) -> int:
    """The length that all sides' windows get so that one of them holds what was seen there, and `room` bytes more."""
    wanted = _up(seen[1] + room) - _down(seen[0])
    if wanted <= length:
        return length
    return max(wanted, _up(int(GROWTH * length)))


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
