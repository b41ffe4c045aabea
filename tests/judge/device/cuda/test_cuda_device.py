"""How a GPU's memory is parted among sides; by arithmetic, so that no GPU is needed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kernwright.judge.device.cuda import device as module
from kernwright.judge.device.cuda.device import CudaDevice
from kernwright.judge.device.problems import DeviceFull

GIB = 2**30
H200 = 138 * GIB  # of its memory, what a judge finds free
STEP = GIB // 256


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> CudaDevice:
    monkeypatch.setattr(CudaDevice, "free_bytes", lambda self: H200)
    monkeypatch.setattr(module, "build_pool", lambda folder: folder)
    device = CudaDevice.__new__(CudaDevice)
    learnt: list[str] = []
    memory_speed = SimpleNamespace(learnt=learnt, learn=lambda: learnt.append("before anybody's code runs"))
    device.keeper = SimpleNamespace(memory_speed=memory_speed)  # type: ignore[assignment]
    return device


def row(size: float) -> Any:
    return SimpleNamespace(bytes_min=int(size))


def largest_accepted(gpu: CudaDevice) -> Any:
    free = gpu.free_bytes()
    return row(max(size for size in range(STEP, free // 8, STEP) if gpu.bytes_to_judge(row(size)) <= free))


@pytest.mark.parametrize("sides", [3, 5, 7, 9, 12])
@pytest.mark.parametrize("free", [H200, 22 * GIB])
def test_however_many_sides_there_are_each_has_room_for_what_a_call_makes_in_between(
    gpu: CudaDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, sides: int
) -> None:
    """A row that is accepted must not fall over for want of memory: it would be said to have failed."""
    monkeypatch.setattr(CudaDevice, "free_bytes", lambda self: free)
    gpu.make_room_for(sides)
    largest = largest_accepted(gpu)
    gpu.begin((largest,), tmp_path)
    assert gpu.keeper.memory_speed.learnt  # type: ignore[attr-defined]
    lent = sides * (gpu._region_bytes + gpu.arena_bytes)
    left = free - (sides - 3) * 5 * GIB // 8  # without what workers' processes take
    assert lent < 0.76 * left
    assert left - lent > 16.4 * largest.bytes_min  # the judge's: a chain in float64 takes eight, and there is more
    assert gpu.block_bytes(largest) > 0.98 * largest.bytes_min
    for judged in (largest, row(largest.bytes_min / 2), row(largest.bytes_min / 16)):
        outputs = max(gpu.block_bytes(judged), judged.bytes_min)  # of two calls at least, however little there is
        assert gpu._region_bytes - outputs > 4.4 * judged.bytes_min
        # What the judge holds for so many calls: their inputs, what they must give in float32, and both twice.
        assert left - lent > 10.4 * judged.bytes_min + 6 * outputs


def test_many_sides_take_no_memory_from_one_pair(gpu: CudaDevice, tmp_path: Path) -> None:
    gpu.make_room_for(3)
    assert 3.5 <= largest_accepted(gpu).bytes_min / GIB < 3.6  # of those that people run the largest has 3.37
    gpu.begin((row(3.0 * GIB),), tmp_path)
    assert gpu.block_bytes(row(1.0 * GIB)) >= 5 * GIB  # ten calls of what writes as much as it reads
    gpu.begin((row(3.37 * GIB),), tmp_path)
    assert gpu.block_bytes(row(3.37 * GIB)) > 0.99 * 3.37 * GIB  # two: with three the judge itself ran out of memory


def test_memory_that_went_meanwhile_is_said_to_be_too_little(
    gpu: CudaDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu.make_room_for(3)
    gpu.name = "cuda:0"
    monkeypatch.setattr(CudaDevice, "free_bytes", lambda self: 24 * GIB)
    with pytest.raises(DeviceFull, match=r"24\.0 GiB are free on cuda:0"):
        gpu.begin((row(1.7 * GIB),), tmp_path)
