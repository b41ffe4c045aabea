"""The occupancy of a launch, against a twin that places block after block, and against exports of Nsight Compute."""

from __future__ import annotations

import random
from itertools import count

import pytest

from kernwright.core.errors import KernwrightError
from kernwright.diagnose.roofline.gpu_model import SmLimits, sm_limits
from kernwright.diagnose.roofline.occupancy import occupancy


def placed_blocks(limits: SmLimits, threads: int, registers: int, shared: int, capacity: int) -> int:
    """Place blocks on an SM until one does not fit. Warps go to the four schedulers in turn."""
    register_files = [65536 // 4] * 4
    warps_left, memory_left, turn = limits.warps, capacity, count()
    per_warp = -(-max(registers, 1) * 32 // 256) * 256
    per_block = -(-(shared + limits.shared_memory_reserved) // limits.shared_memory_unit) * limits.shared_memory_unit
    for placed in range(limits.blocks):
        warps = -(-threads // 32)
        if warps > warps_left or per_block > memory_left:
            return placed
        for _ in range(warps):
            file = next(turn) % 4
            if register_files[file] < per_warp:
                return placed
            register_files[file] -= per_warp
        warps_left -= warps
        memory_left -= per_block
    return limits.blocks


@pytest.mark.parametrize("capability", sm_limits())
def test_occupancy_agrees_with_placing_block_after_block(capability: str) -> None:
    limits, numbers = sm_limits()[capability], random.Random(capability)
    for _ in range(400):
        threads = numbers.choice([numbers.randint(1, 1024), 32 * numbers.randint(1, 32)])
        registers = numbers.randint(0, 255)
        shared = numbers.choice([0, numbers.randint(0, limits.shared_memory_block)])
        capacity = numbers.choice([limits.shared_memory, numbers.randint(shared + 2048, shared + 65536)])
        found = occupancy(limits, threads, registers, shared, capacity)
        assert found.blocks == placed_blocks(limits, threads, registers, shared, capacity), (threads, registers, shared)


def test_what_limits_a_launch_is_named() -> None:
    hopper = sm_limits()["9.0"]
    assert occupancy(hopper, 256, 32).limits == ["warps", "registers"]
    assert occupancy(hopper, 256, 128).limits == ["registers"]
    assert occupancy(hopper, 32, 16).limits == ["blocks"]
    assert occupancy(hopper, 128, 32, 100 * 1024).limits == ["shared memory"]
    assert occupancy(hopper, 128, 168, 200 * 1024).share == 4 / 64


@pytest.mark.parametrize(
    ("launch", "named"),
    [((0, 32, 0), "threads"), ((1025, 32, 0), "1025"), ((128, 256, 0), "registers"), ((128, 32, 228 * 1024), "shared")],
)
def test_a_launch_that_a_gpu_refuses_has_no_occupancy(launch: tuple[int, int, int], named: str) -> None:
    with pytest.raises(KernwrightError, match=named):
        occupancy(sm_limits()["9.0"], *launch)
