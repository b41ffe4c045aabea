"""Configuration: how a Triton kernel cuts up its work, and what it is where nobody has measured.

Kernels over tokens hold a token whole where a piece is as wide as it, and walk through it in pieces otherwise; those of
the elementwise ops go over tiles of tokens and channels. Any configuration gives a right result, so a measured one
(`runtime/triton/tuning.py`) may take another's place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

HELD = 16384  # the widest token that a program keeps in registers: 32 values a thread with 16 warps
FEW = 2**20  # elements, below which more programs are better than longer ones
TILE, SMALL_TILE = 4096, 1024  # elements a program of four warps: 32 a thread, or 8 where there are few


@dataclass(frozen=True)
class Configuration:
    """Tokens a program, channels a piece, warps: each a power of two."""

    rows: int
    block: int
    warps: int

    def __str__(self) -> str:
        return f"{self.rows} x {self.block} by {self.warps} warp{'s' if self.warps > 1 else ''}"


@dataclass(frozen=True)
class Situation:
    """What a configuration is chosen by. The op is the one that its kernel is named after in KERNELS."""

    op: str
    width: int
    element_bytes: int
    is_few: bool

    def __str__(self) -> str:
        return f"{self.op}, {self.width} wide, {self.element_bytes} bytes, {'few' if self.is_few else 'many'}"

    @property
    def default(self) -> Configuration:
        return KERNELS[self.op](self.width, self.is_few)


def power_of_two(number: int) -> int:
    """The next one."""
    return 1 << max(number - 1, 0).bit_length()


def of_tokens(width: int, is_few: bool = False) -> Configuration:
    """A memory-bound kernel has few good shapes a width: this table is right where nothing was measured."""
    block = power_of_two(max(width, 16))
    if block > HELD:
        return Configuration(1, 4096, 8)
    if block <= 512:  # small tokens: several a program, so that each thread has some 8 values
        return Configuration(max(1, 1024 // block), block, 4)
    return Configuration(1, block, {1024: 4, 2048: 4, 4096: 8, 8192: 16}.get(block, 16))


def of_tiles(width: int, is_few: bool) -> Configuration:
    whole = block = min(power_of_two(max(width, 16)), 1024)
    while block > 256 and width % block:  # no program with a rest, if that can be had without short loads
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
# Ops that run through another one's kernel, and have its configurations.
SHARED = {
    "dual_modulate_from_table": "dual_modulate",
    "ernie_norm_modulate": "norm_scale_shift",
    "ernie_residual_gate": "residual_gate",
    "ernie_residual_norm_modulate": "residual_norm_scale_shift",
    "fused_add_rms_norm_": "add_norm",
    "rms_modulate_from_table": "rms_modulate",
}


def kernel_of(op: str) -> str | None:
    """The op whose configurations this one has, if Triton runs it by any."""
    own = SHARED.get(op, op)
    return own if own in KERNELS else None
