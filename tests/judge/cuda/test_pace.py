"""Waiting for memory to be fast: by a device and a clock that say what the test has them say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, repeat

import pytest

from kernwright.judge.cuda.pace import MOST_WAIT_S, STEADY, Pace

FAST, SLOW, STEP_S = 1.0, 1.11, 0.001


class Device:
    """Its copies take what it is told; each takes a step of its clock."""

    def __init__(self, *took: float, then: float = FAST) -> None:
        self.told: Iterator[float] = chain(took, repeat(then))
        self.copies = 0

    def copy(self) -> float:
        self.copies += 1
        return next(self.told)

    def now(self) -> float:
        return self.copies * STEP_S


@pytest.fixture
def paced() -> Callable[..., tuple[Device, Pace]]:
    """A device whose best pace is known."""

    def known(*took: float, then: float = FAST) -> tuple[Device, Pace]:
        device = Device(*[FAST] * (STEADY + 2), *took, then=then)
        pace = Pace(device.copy, device.now)
        pace.is_full()
        device.copies = 0
        return device, pace

    return known


Paced = Callable[..., tuple[Device, Pace]]


def test_a_fast_device_is_asked_once(paced: Paced) -> None:
    device, pace = paced()
    assert pace.is_full() and device.copies == 1


def test_a_slowed_device_is_waited_for(paced: Paced) -> None:
    device, pace = paced(*[SLOW] * 37)
    assert pace.is_full() and device.copies == 38


def test_chance_is_no_slowness(paced: Paced) -> None:
    device, pace = paced(1.03)
    assert pace.is_full() and device.copies == 1


def test_a_device_that_stays_slow_is_told_each_time(paced: Paced) -> None:
    device, pace = paced(then=SLOW)
    for _ in range(2):
        device.copies = 0
        assert not pace.is_full()
        assert MOST_WAIT_S / STEP_S <= device.copies <= MOST_WAIT_S / STEP_S + 2


def test_until_it_is_taken_as_it_is(paced: Paced) -> None:
    device, pace = paced(then=SLOW)
    assert not pace.is_full()
    pace.accept()
    device.copies = 0
    assert pace.is_full() and device.copies == 1


def test_and_when_it_is_fast_again_that_counts(paced: Paced) -> None:
    device, pace = paced(then=SLOW)
    assert not pace.is_full()
    pace.accept()
    device.told = iter([FAST, SLOW, SLOW, SLOW, FAST])
    assert pace.is_full()
    before = device.copies
    assert pace.is_full() and device.copies == before + 4


def test_slowness_from_the_first_copy_on_is_found_out() -> None:
    device = Device(*[SLOW] * (STEADY - 1), FAST, SLOW, SLOW, SLOW)
    assert Pace(device.copy, device.now).is_full()
    assert device.copies == 2 * STEADY + 1
    slow = Device(then=SLOW)
    assert Pace(slow.copy, slow.now).is_full(), "what never was fast is its pace"
    assert slow.copies == STEADY + 2


def test_the_time_that_was_waited_is_told(paced: Paced) -> None:
    _, pace = paced(*[SLOW] * 99)
    before = pace.waited_s
    pace.is_full()
    assert pace.waited_s - before == pytest.approx(100 * STEP_S)
