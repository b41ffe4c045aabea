"""Waiting for memory to be fast, with a device and a clock that follow the test's instructions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, cycle, repeat
from types import SimpleNamespace
from typing import Any

import pytest

from kernwright.judge.device.cuda import session
from kernwright.judge.device.cuda.device import CudaDevice
from kernwright.judge.device.cuda.memory import region
from kernwright.judge.device.cuda.memory.memory_speed import FAST_RUN, LEARN_S, MAX_WAIT_S, RECORD_RUN, MemorySpeed
from kernwright.judge.device.cuda.memory.region import OutputKeeper
from kernwright.judge.device.cuda.session import CudaSession
from kernwright.judge.session.session import DeviceSlowed

FAST, SLOW, STEP_S = 1.0, 1.11, 0.001
TO_LEARN = round(LEARN_S / STEP_S)  # number of copies


class Device:
    """A device whose copies take given times. Each copy advances its clock by one step."""

    def __init__(self, *took: float, then: float = FAST) -> None:
        self.told: Iterator[float] = chain(took, repeat(then))
        self.copies = self.passed = 0

    def copy(self) -> float:
        self.copies += 1
        self.passed += 1
        return next(self.told)

    def now(self) -> float:
        return self.passed * STEP_S

    def pause(self, seconds: float) -> None:
        self.passed += round(seconds / STEP_S)

    @property
    def memory_speed(self) -> MemorySpeed:
        return MemorySpeed(self.copy, self.now, self.pause)


Paced = Callable[..., tuple[Device, MemorySpeed]]


@pytest.fixture
def paced() -> Paced:
    """Return a device whose best pace is known."""

    def known(*took: float, then: float = FAST) -> tuple[Device, MemorySpeed]:
        device = Device()
        memory_speed = device.memory_speed
        memory_speed.learn()
        device.copies, device.told = 0, chain(took, repeat(then))
        return device, memory_speed

    return known


def test_a_fast_device_is_asked_once(paced: Paced) -> None:
    device, memory_speed = paced()
    assert memory_speed.wait_until_fast() and device.copies == 1


def test_a_slowed_device_is_waited_for_until_it_is_fast_for_a_while(paced: Paced) -> None:
    device, memory_speed = paced(*[SLOW] * 37)
    assert memory_speed.wait_until_fast() and device.copies == 37 + FAST_RUN


def test_a_small_deviation_is_not_slow(paced: Paced) -> None:
    device, memory_speed = paced(1.03)
    assert memory_speed.wait_until_fast() and device.copies == 1


def test_an_occasionally_slow_device_is_slow(paced: Paced) -> None:
    device, memory_speed = paced()
    device.told = cycle([SLOW, *[FAST] * (FAST_RUN - 1)])
    assert not memory_speed.wait_until_fast()
    device.told = cycle([SLOW, *[FAST] * FAST_RUN])
    assert memory_speed.wait_until_fast()


def test_a_device_that_stays_slow_is_reported_each_time(paced: Paced) -> None:
    device, memory_speed = paced(then=SLOW)
    for within_s in (MAX_WAIT_S, 0.5):
        started = device.now()
        assert not memory_speed.wait_until_fast(within_s)
        assert within_s < device.now() - started < within_s + 5 * STEP_S
        assert device.copies < within_s / STEP_S / 2, "it has pauses"
        device.copies = 0


def test_a_slow_device_is_accepted_on_request(paced: Paced) -> None:
    device, memory_speed = paced(then=SLOW)
    assert not memory_speed.wait_until_fast()
    memory_speed.accept()
    device.copies = 0
    assert memory_speed.wait_until_fast() and device.copies == 1


def test_an_accepted_device_that_is_fast_again_must_stay_fast(paced: Paced) -> None:
    device, memory_speed = paced(then=SLOW)
    assert not memory_speed.wait_until_fast()
    memory_speed.accept()
    device.told = chain([FAST] * RECORD_RUN, [SLOW] * 3, repeat(FAST))
    assert all(memory_speed.wait_until_fast() for _ in range(RECORD_RUN))
    device.copies = 0
    assert memory_speed.wait_until_fast() and device.copies == 3 + FAST_RUN


def test_one_fast_outlier_makes_nothing_slow(paced: Paced) -> None:
    device, memory_speed = paced(*[0.9] * (RECORD_RUN - 1), then=FAST)
    assert all(memory_speed.wait_until_fast() for _ in range(9)) and device.copies == 9
    glitches = Device(*[0.9] * (TO_LEARN // 25), then=FAST)
    memory_speed = glitches.memory_speed
    memory_speed.learn()
    glitches.copies = 0
    assert memory_speed.wait_until_fast() and glitches.copies == 1


def test_the_first_wipe_does_not_set_the_standard() -> None:
    device = Device(*[SLOW] * (TO_LEARN * 7 // 8))
    memory_speed = device.memory_speed
    memory_speed.learn()
    device.copies, device.told = 0, chain([SLOW], repeat(FAST))
    assert memory_speed.wait_until_fast() and device.copies == 1 + FAST_RUN
    slow = Device(then=SLOW)
    assert slow.memory_speed.wait_until_fast(), "what never was fast is its pace"


class Stub:
    """A memory speed with given answers."""

    def __init__(self, full: bool) -> None:
        self.full, self.learnt, self.accepted = full, 0, 0

    def wait_until_fast(self, within_s: float = 0.0) -> bool:
        return self.full

    def learn(self) -> None:
        self.learnt += 1

    def accept(self) -> None:
        self.accepted += 1


@pytest.fixture
def keeper(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], Any]:
    """Return a memory keeper without a GPU."""

    def told(full: bool) -> Any:
        stub = Stub(full)
        monkeypatch.setattr(region, "memory_speed_of", lambda device: stub)
        monkeypatch.setattr(OutputKeeper, "response_ns", lambda self: 0)
        keeper = OutputKeeper.__new__(OutputKeeper)
        keeper.device = 0
        return keeper

    return told


@pytest.mark.parametrize("full", [True, False])
def test_no_block_begins_on_a_slow_device(
    keeper: Callable[[bool], Any], full: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "reset_persisting_l2", lambda: None)
    monkeypatch.setattr(CudaSession, "_synchronize", lambda self: None)
    flushed: list[int] = []
    own = CudaSession.__new__(CudaSession)
    own.keeper, own._flush = keeper(full), SimpleNamespace(fill_=flushed.append)  # type: ignore[assignment]
    if full:
        own.ready()
        assert flushed
    else:
        with pytest.raises(DeviceSlowed):
            own.ready()


def test_a_device_says_whether_it_is_slow_and_is_taken_as_it_is(keeper: Callable[[bool], Any]) -> None:
    device = CudaDevice.__new__(CudaDevice)
    device.keeper = keeper(True)
    assert not device.is_slow(1.0)
    device.keeper = keeper(False)
    assert device.is_slow(1.0) and not device.keeper.memory_speed.accepted  # type: ignore[attr-defined]
    device.accept_memory_speed()
    assert device.keeper.memory_speed.accepted == 1  # type: ignore[attr-defined]
