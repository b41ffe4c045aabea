"""Something of the judge's keeps the workers' processor awake, and is out of the way before a worker goes on."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kernwright.judge.device.cpu import CpuDevice
from kernwright.judge.device.keepalive import vigil_over
from kernwright.judge.process.cpu_keepalive import Vigil

WORKER = 4711


@pytest.fixture
def vigil() -> Iterator[Vigil]:
    keeper = Vigil(max(os.sched_getaffinity(0)))
    yield keeper
    keeper.end()


def ticks(vigil: Vigil) -> int:
    fields = Path(f"/proc/{vigil.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


def eventually(holds: Callable[[], bool]) -> bool:
    end = time.monotonic() + 30.0
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def runs(vigil: Vigil) -> bool:
    before = ticks(vigil)
    return eventually(lambda: ticks(vigil) > before + 3)


def sleeps(vigil: Vigil) -> bool:
    """Twice asleep with no time spent in between; it may take a moment to get there on a busy machine."""

    def still() -> bool:
        before = ticks(vigil)
        time.sleep(0.1)
        state = Path(f"/proc/{vigil.pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        return state == "S" and ticks(vigil) == before

    return eventually(still)


def test_it_runs_while_workers_stand_still_and_sleeps_while_one_moves(vigil: Vigil) -> None:
    assert sleeps(vigil)
    vigil.goes_on(WORKER)
    vigil.stands_still(WORKER)
    assert runs(vigil)
    vigil.goes_on(WORKER)
    assert sleeps(vigil)


def test_it_waits_for_the_last_worker(vigil: Vigil) -> None:
    vigil.goes_on(WORKER)
    vigil.goes_on(WORKER + 1)
    vigil.stands_still(WORKER)
    assert sleeps(vigil)
    vigil.stands_still(WORKER + 1)
    assert runs(vigil)


def test_it_stays_on_its_processor(vigil: Vigil) -> None:
    assert eventually(lambda: os.sched_getaffinity(vigil.pid) == {vigil.processor})


def test_one_that_was_killed_is_no_reason_to_stop(vigil: Vigil) -> None:
    os.kill(vigil.pid, 9)
    vigil.goes_on(WORKER)
    assert eventually(lambda: Path(f"/proc/{vigil.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z")
    vigil.stands_still(WORKER)


class GpuOfManyProcessors(CpuDevice):
    has_kernels = True


def test_a_device_has_one_for_the_time_of_a_judgement(monkeypatch: pytest.MonkeyPatch) -> None:
    processor = max(os.sched_getaffinity(0))
    device: Any = GpuOfManyProcessors()
    monkeypatch.setattr(device, "worker_processor", lambda: processor)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(processor)))
    with vigil_over(device):
        assert device.vigil is not None
        pid = device.vigil.pid
        assert Path(f"/proc/{pid}").exists()
    assert device.vigil is None
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize(("has_kernels", "processor"), [(False, 7), (True, 3), (True, None)])
def test_none_on_a_cpu_or_where_the_judge_shares_the_workers_processor(
    monkeypatch: pytest.MonkeyPatch, has_kernels: bool, processor: int | None
) -> None:
    device: Any = GpuOfManyProcessors()
    device.has_kernels = has_kernels
    monkeypatch.setattr(device, "worker_processor", lambda: processor)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    with vigil_over(device):
        assert device.vigil is None


def test_it_knows_nothing_of_the_judges_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET", "of the judge's")
    own = Vigil(max(os.sched_getaffinity(0)))
    try:
        assert b"A_SECRET" not in Path(f"/proc/{own.pid}/environ").read_bytes()
    finally:
        own.end()
