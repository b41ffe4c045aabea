"""Configuration: how a Triton kernel divides its work, and the defaults where nothing was measured.

A kernel over tokens holds a whole token if a block is as wide as the token, and loops over blocks otherwise. Kernels of
elementwise ops work on tiles of tokens and channels. Every configuration gives a correct result, so that a measured one
(`runtime/triton/tuning.py`) can replace the default.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

HELD = 16384  # the widest token that a program keeps in registers: 32 values a thread with 16 warps
FEW = 2**20  # below so many elements, more programs are better than longer ones
TILE, SMALL_TILE = 4096, 1024  # elements of a program of four warps: 32 per thread, or 8 if there are few


@dataclass(frozen=True)
class Configuration:
    """Tokens per program, channels per block, and warps: each a power of two."""

    rows: int
    block: int
    warps: int

    def __str__(self) -> str:
        return f"{self.rows} x {self.block} by {self.warps} warp{'s' if self.warps > 1 else ''}"


@dataclass(frozen=True)
class Situation:
    """The facts that a configuration is chosen by. `op` is the one that its kernel is named after in KERNELS."""

    op: str
    width: int
    element_bytes: int
    is_few: bool

    def __str__(self) -> str:
        return f"{self.op}, {self.width} wide, {self.element_bytes} bytes, {'few' if self.is_few else 'many'}"

    @property
    def default(self) -> Configuration:
        """Return the configuration that is used where nothing was measured."""
        return KERNELS[self.op](self.width, self.is_few)


def power_of_two(number: int) -> int:
    """Return the smallest power of two that is not below a number."""
    return 1 << max(number - 1, 0).bit_length()


def of_tokens(width: int, is_few: bool = False) -> Configuration:
    """Return the default of a kernel over tokens. A memory-bound kernel has few good shapes for each width."""
    block = power_of_two(max(width, 16))
    if block > HELD:
        return Configuration(1, 4096, 8)
    if block <= 512:  # small tokens: several per program, so that each thread has about 8 values
        return Configuration(max(1, 1024 // block), block, 4)
    return Configuration(1, block, {1024: 4, 2048: 4, 4096: 8, 8192: 16}.get(block, 16))


def of_tiles(width: int, is_few: bool) -> Configuration:
    """Return the default of an elementwise kernel."""
    whole = block = min(power_of_two(max(width, 16)), 1024)
    while block > 256 and width % block:  # a block that divides the width, if it is not too short
        block //= 2
    if width % block:
        block = whole
    return Configuration(max(1, (SMALL_TILE if is_few else TILE) // block), block, 4)


KERNELS: dict[str, Callable[[int, bool], Configuration]] = {
    "add_norm": of_tokens,
    "broadcast_add": of_tiles,
    "dual_modulate": of_tokens,
    "layer_norm": of_tokens,
    "norm_scale_shift": of_tokens,
    "norm_scale_shift_select": of_tokens,
    "norm_tanh_mul_add": of_tokens,
    "norm_tanh_mul_add_norm_scale": of_tokens,
    "residual_gate": of_tiles,
    "residual_norm_scale_shift": of_tokens,
    "residual_norm_scale_shift_select": of_tokens,
    "rms_modulate": of_tokens,
    "rms_norm": of_tokens,
    "scale_shift": of_tiles,
}
# Ops that run another op's kernel and share its configurations.
SHARED = {
    "dual_modulate_from_table": "dual_modulate",
    "ernie_norm_modulate": "norm_scale_shift",
    "ernie_residual_gate": "residual_gate",
    "ernie_residual_norm_modulate": "residual_norm_scale_shift",
    "fused_add_rms_norm_": "add_norm",
    "rms_modulate_from_table": "rms_modulate",
}


def kernel_of(op: str) -> str | None:
    """Return the op whose configurations this op uses; None if its Triton kernel has none."""
    own = SHARED.get(op, op)
    return own if own in KERNELS else None
