"""A process of the judge keeps the workers' processor awake, and stops before a worker continues."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kernwright.judge.device.cpu import CpuDevice
from kernwright.judge.device.keepalive import keep_processor_awake
from kernwright.judge.process.cpu_keepalive import CpuKeepalive

pytestmark = pytest.mark.whole_machine  # the tests observe whether a processor sleeps

WORKER = 4711


@pytest.fixture
def keepalive() -> Iterator[CpuKeepalive]:
    keeper = CpuKeepalive(max(os.sched_getaffinity(0)))
    yield keeper
    keeper.end()


def ticks(keepalive: CpuKeepalive) -> int:
    fields = Path(f"/proc/{keepalive.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


def eventually(holds: Callable[[], bool]) -> bool:
    end = time.monotonic() + 30.0
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def runs(keepalive: CpuKeepalive) -> bool:
    before = ticks(keepalive)
    return eventually(lambda: ticks(keepalive) > before + 3)


def sleeps(keepalive: CpuKeepalive) -> bool:
    """Return True if the process slept twice without using time in between. On a busy machine this may take a
    moment."""

    def still() -> bool:
        before = ticks(keepalive)
        time.sleep(0.1)
        state = Path(f"/proc/{keepalive.pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        return state == "S" and ticks(keepalive) == before

    return eventually(still)


def test_it_runs_while_workers_stand_still_and_sleeps_while_one_moves(keepalive: CpuKeepalive) -> None:
    assert sleeps(keepalive)
    keepalive.goes_on(WORKER)
    keepalive.stands_still(WORKER)
    assert runs(keepalive)
    keepalive.goes_on(WORKER)
    assert sleeps(keepalive)


def test_it_waits_for_the_last_worker(keepalive: CpuKeepalive) -> None:
    keepalive.goes_on(WORKER)
    keepalive.goes_on(WORKER + 1)
    keepalive.stands_still(WORKER)
    assert sleeps(keepalive)
    keepalive.stands_still(WORKER + 1)
    assert runs(keepalive)


def test_it_stays_on_its_processor(keepalive: CpuKeepalive) -> None:
    assert eventually(lambda: os.sched_getaffinity(keepalive.pid) == {keepalive.processor})


def test_a_killed_keepalive_is_no_reason_to_stop(keepalive: CpuKeepalive) -> None:
    os.kill(keepalive.pid, 9)
    keepalive.goes_on(WORKER)
    assert eventually(lambda: Path(f"/proc/{keepalive.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z")
    keepalive.stands_still(WORKER)


class GpuOfManyProcessors(CpuDevice):
    has_kernels = True


def test_a_device_has_one_for_the_time_of_a_judgement(monkeypatch: pytest.MonkeyPatch) -> None:
    processor = max(os.sched_getaffinity(0))
    device: Any = GpuOfManyProcessors()
    monkeypatch.setattr(device, "worker_processor", lambda: processor)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(processor)))
    with keep_processor_awake(device):
        assert device.keepalive is not None
        pid = device.keepalive.pid
        assert Path(f"/proc/{pid}").exists()
    assert device.keepalive is None
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize(("has_kernels", "processor"), [(False, 7), (True, 3), (True, None)])
def test_none_on_a_cpu_or_where_the_judge_shares_the_workers_processor(
    monkeypatch: pytest.MonkeyPatch, has_kernels: bool, processor: int | None
) -> None:
    device: Any = GpuOfManyProcessors()
    device.has_kernels = has_kernels
    monkeypatch.setattr(device, "worker_processor", lambda: processor)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    with keep_processor_awake(device):
        assert device.keepalive is None


def test_it_has_nothing_of_the_judges_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET", "of the judge's")
    own = CpuKeepalive(max(os.sched_getaffinity(0)))
    try:
        assert b"A_SECRET" not in Path(f"/proc/{own.pid}/environ").read_bytes()
    finally:
        own.end()
