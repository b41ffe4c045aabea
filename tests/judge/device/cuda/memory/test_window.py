"""Windows: equally long for every side, from the start of its own outputs, and never beyond its memory."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernwright.judge.device.cuda.memory.window import PAGE, Span, contains, grown_span, window_length, window_of

SIZE = 64 * PAGE
places = st.integers(0, SIZE)
spans = st.tuples(places, places).map(lambda ends: (min(ends), max(ends)))


def after(seen: Span | None, length: int, outputs: Span, room: int = 0) -> tuple[Span, int]:
    """Return the window after one block with these outputs."""
    seen = grown_span(seen, outputs, SIZE)
    return seen, min(window_length(length, seen, room), SIZE)


@given(st.lists(spans, min_size=1, max_size=8), st.integers(0, 4 * PAGE))
def test_a_window_contains_all_outputs_seen_so_far(blocks: list[Span], room: int) -> None:
    seen, length = None, 0
    for outputs in blocks:
        seen, length = after(seen, length, outputs, room)
    window = window_of(seen, length, SIZE)
    assert all(contains(window, outputs) for outputs in blocks)
    assert window[0] >= 0 and window[1] <= SIZE and window[1] - window[0] == length


def test_a_side_with_temporaries_below_its_outputs_does_not_make_the_others_copy_these() -> None:
    _, length = after(None, 0, (40 * PAGE, 42 * PAGE))
    low = window_of((0, 2 * PAGE), length, SIZE)
    high = window_of((40 * PAGE, 42 * PAGE), length, SIZE)
    assert (low, high) == ((0, 2 * PAGE), (40 * PAGE, 42 * PAGE))


def test_room_is_left_above_the_outputs_seen_so_far() -> None:
    seen, length = after(None, 0, (3 * PAGE, 4 * PAGE), room=2 * PAGE)
    window = window_of(seen, length, SIZE)
    assert contains(window, (5 * PAGE, 6 * PAGE)) and not contains(window, (6 * PAGE, 7 * PAGE))


@pytest.mark.parametrize("steps", [range(60), range(60)[::-1], [n // 2 if n % 2 else 60 - n // 2 for n in range(60)]])
def test_outputs_that_wander_are_caught_up_with_in_few_blocks(steps: Sequence[int]) -> None:
    seen, length, moves = None, 0, 0
    for step in steps:
        outputs = (step * PAGE, (step + 1) * PAGE)
        if not contains(window_of(seen, length, SIZE), outputs):
            seen, length = after(seen, length, outputs)
            moves += 1
    assert moves <= 10


def test_at_the_end_of_the_memory_a_window_begins_further_down() -> None:
    assert window_of((62 * PAGE, 63 * PAGE), 8 * PAGE, SIZE) == (56 * PAGE, SIZE)


def test_a_block_without_outputs_fits_any_window() -> None:
    assert contains(window_of(None, 0, SIZE), (0, 0))
    assert not contains(window_of(None, 0, SIZE), (0, 1))
