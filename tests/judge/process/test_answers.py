"""A worker's report of an error: foreign text, bounded and without control characters."""

from __future__ import annotations

from typing import Any

import pytest

from kernwright.judge.process.answers import MOST_FRAME, MOST_FRAMES, failure_of


@pytest.mark.parametrize("frames", [None, 7, "kernel.py:3", {"a": 1}, [], [["nested"]], ["x\x1b[2J\n" * 999] * 99])
def test_frames_may_be_anything(frames: Any) -> None:
    told = str(failure_of({"error": "broken", "kind": "ValueError", "frames": frames}))
    first, *lines = told.split("\n")
    assert first == "broken" and "\x1b" not in told
    assert len(lines) <= MOST_FRAMES and all(len(line) < MOST_FRAME + 10 for line in lines)


def test_frames_follow_the_message_innermost_last() -> None:
    told = str(failure_of({"error": "broken", "frames": [f"kernel.py:{line} in run" for line in range(9)]}))
    assert told.split("\n") == ["broken", *(f"  at kernel.py:{line} in run" for line in range(9 - MOST_FRAMES, 9))]
