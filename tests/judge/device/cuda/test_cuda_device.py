"""The division of a GPU's memory among sides, computed without a GPU."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kernwright.judge.device.cuda import device as module
from kernwright.judge.device.cuda.device import CudaDevice
from kernwright.judge.device.problems import DeviceFull

GIB = 2**30
H200 = 138 * GIB  # free memory that a judge finds on an H200
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
def test_every_side_has_room_for_the_temporaries_of_a_call(
    gpu: CudaDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, sides: int
) -> None:
    """An accepted row must not run out of memory later, because it would be reported as failed."""
    monkeypatch.setattr(CudaDevice, "free_bytes", lambda self: free)
    gpu.make_room_for(sides)
    largest = largest_accepted(gpu)
    gpu.begin((largest,), tmp_path)
    assert gpu.keeper.memory_speed.learnt  # type: ignore[attr-defined]
    lent = sides * (gpu._region_bytes + gpu.arena_bytes)
    left = free - (sides - 3) * 5 * GIB // 8  # without the memory of the workers' processes
    assert lent < 0.76 * left
    # Memory of the judge: a float64 chain takes eight times the row, and there is more.
    assert left - lent > 16.4 * largest.bytes_min
    assert gpu.block_bytes(largest) > 0.98 * largest.bytes_min
    for judged in (largest, row(largest.bytes_min / 2), row(largest.bytes_min / 16)):
        outputs = max(gpu.block_bytes(judged), judged.bytes_min)  # memory for at least two calls in every case
        assert gpu._region_bytes - outputs > 4.4 * judged.bytes_min
        # Memory of the judge for these calls: their inputs, their expected outputs in float32, and both twice.
        assert left - lent > 10.4 * judged.bytes_min + 6 * outputs


def test_many_sides_take_no_memory_from_one_pair(gpu: CudaDevice, tmp_path: Path) -> None:
    gpu.make_room_for(3)
    assert 3.5 <= largest_accepted(gpu).bytes_min / GIB < 3.6  # the largest row in use has 3.37 GiB
    gpu.begin((row(3.0 * GIB),), tmp_path)
    assert gpu.block_bytes(row(1.0 * GIB)) >= 5 * GIB  # ten calls of an op that writes as much as it reads
    gpu.begin((row(3.37 * GIB),), tmp_path)
    # Two calls: with three, the judge itself ran out of memory.
    assert gpu.block_bytes(row(3.37 * GIB)) > 0.99 * 3.37 * GIB


def test_memory_that_was_taken_meanwhile_is_reported(
    gpu: CudaDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu.make_room_for(3)
    gpu.name = "cuda:0"
    monkeypatch.setattr(CudaDevice, "free_bytes", lambda self: 24 * GIB)
    with pytest.raises(DeviceFull, match=r"24\.0 GiB are free on cuda:0"):
        gpu.begin((row(1.7 * GIB),), tmp_path)
