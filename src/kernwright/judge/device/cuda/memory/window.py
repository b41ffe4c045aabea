"""Window: the bytes of a side's region that are copied before the clock stops.

All sides have windows of the same length, each with its own start.
"""

from __future__ import annotations

Span = tuple[int, int]  # start and end; the end is exclusive
PAGE = 2**21  # windows begin and end at multiples of this
GROWTH = 1.5  # factor by which the span grows, so that outputs that move step by step do not waste a block per step


def contains(window: Span, outputs: Span) -> bool:
    return is_empty(outputs) or (window[0] <= outputs[0] and outputs[1] <= window[1])


def is_empty(span: Span) -> bool:
    return span[0] >= span[1]


def grown_span(seen: Span | None, outputs: Span, size: int) -> Span:
    """Return the span of all outputs seen so far, extended further in the direction in which they moved."""
    if seen is None:
        return outputs
    low, high = min(seen[0], outputs[0]), max(seen[1], outputs[1])
    growth = int((GROWTH - 1) * (high - low))
    return (max(0, low - growth) if low < seen[0] else low, min(size, high + growth) if high > seen[1] else high)


def window_length(length: int, seen: Span, extra_bytes: int) -> int:
    """Return the length of all sides' windows after it has grown to contain `seen` and `extra_bytes` more."""
    return max(length, _round_up(seen[1] + extra_bytes) - _round_down(seen[0]))


def window_of(seen: Span | None, length: int, size: int) -> Span:
    """Return the window that starts with `seen`, or earlier if the memory would end before the window."""
    if seen is None:
        return 0, min(length, size)
    start = max(0, min(_round_down(seen[0]), _round_down(size - length)))
    return start, min(start + length, size)


def _round_down(offset: int) -> int:
    return offset // PAGE * PAGE


def _round_up(offset: int) -> int:
    return -(-offset // PAGE) * PAGE
