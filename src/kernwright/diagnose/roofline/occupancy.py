"""Occupancy: how many blocks of a launch fit on an SM at once, and what limits them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kernwright.core.errors import KernwrightError
from kernwright.diagnose.roofline.gpu_model import SmLimits, common_limits

OccupancyLimit = Literal["warps", "blocks", "registers", "shared memory"]


@dataclass(frozen=True)
class Occupancy:
    """The number of blocks that fit on an SM, by resource."""

    by_limit: dict[OccupancyLimit, int]
    warps_per_block: int
    most_warps: int

    @property
    def blocks(self) -> int:
        """Return the blocks that are resident on an SM at once."""
        return min(self.by_limit.values())

    @property
    def warps(self) -> int:
        return self.blocks * self.warps_per_block

    @property
    def share(self) -> float:
        """Return the resident warps as a share of the most that an SM can hold."""
        return self.warps / self.most_warps

    @property
    def limits(self) -> list[OccupancyLimit]:
        """Return the resources that limit the number of blocks. If there are several, all of them must be raised."""
        return [limit for limit, blocks in self.by_limit.items() if blocks == self.blocks]


def occupancy(
    limits: SmLimits, threads: int, registers: int, shared_memory: int = 0, shared_memory_of_sm: int | None = None
) -> Occupancy:
    """Return the occupancy of a launch.

    Args:
        threads: threads of a block.
        registers: registers per thread, as the compiler reports them.
        shared_memory: bytes of a block, static and dynamic, without those that the driver adds.
        shared_memory_of_sm: bytes that an SM is configured for; the driver chooses this per kernel. Default: the most.

    Raises:
        KernwrightError: no SM can run such a block.
    """
    _check(limits, threads, registers, shared_memory)
    common = common_limits()
    warps = _divide_up(threads, common.warp_threads)
    # A warp gets its registers from the part of the file that belongs to its scheduler.
    per_warp = _round_up(max(registers, 1) * common.warp_threads, common.register_unit)
    by_registers = common.registers // common.schedulers // per_warp * common.schedulers // warps
    per_block = _round_up(shared_memory + limits.shared_memory_reserved, limits.shared_memory_unit)
    capacity = limits.shared_memory if shared_memory_of_sm is None else shared_memory_of_sm
    return Occupancy(
        {
            "warps": limits.warps // warps,
            "blocks": limits.blocks,
            "registers": by_registers,
            "shared memory": capacity // per_block if per_block else limits.blocks,
        },
        warps,
        limits.warps,
    )


def _check(limits: SmLimits, threads: int, registers: int, shared_memory: int) -> None:
    common = common_limits()
    ranges = (
        ("threads per block", threads, 1, common.block_threads),
        ("registers per thread", registers, 0, common.registers_thread),
        ("bytes of shared memory per block", shared_memory, 0, limits.shared_memory_block),
    )
    for name, value, least, most in ranges:
        if not least <= value <= most:
            raise KernwrightError(
                f"{name} must be {least} to {most} at compute capability {limits.capability}, got {value}",
                "check the launch: the GPU would refuse it",
            )


def _divide_up(value: int, by: int) -> int:
    return -(-value // by)


def _round_up(value: int, unit: int) -> int:
    return _divide_up(value, unit) * unit
