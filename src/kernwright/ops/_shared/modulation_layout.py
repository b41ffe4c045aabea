"""ModulationLayout: the row of a modulation that belongs to a token. `native/reader.h` has the same for native
kernels."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from kernwright.runtime.call import BadArgument


@dataclass(frozen=True)
class ModulationLayout:
    """The row for token (b, s) starts at b * batch_step + (s // tokens_per_row) * token_step."""

    batch_step: int = 0
    token_step: int = 0
    tokens_per_row: int = 1
    channel_step: int = 0  # 0: one number serves all channels


def check_modulation(name: str, modulation: Tensor, x: Tensor, x_name: str = "x") -> None:
    """Check that a modulation is one number, `[D]`, `[B, D]`, `[B, S, D]` with any axis 1, or `[B, F, 1, D]`."""
    shape, against = list(modulation.shape), list(x.shape)
    if x.ndim == 3 and modulation.ndim == 4:
        frames, tokens = shape[1], against[1]
        if frames == 0 or tokens % frames:
            raise BadArgument(name, f"{tokens} tokens do not divide into {frames} frames")
        if shape[2] != 1:
            raise BadArgument(name, f"is {shape}, it must have size 1 behind its frames, as in [B, F, 1, D]")
        shape, against = [shape[0], shape[3]], [against[0], against[2]]
    elif x.ndim == 3 and modulation.ndim == 2:
        against = [against[0], against[2]]
    elif modulation.ndim > x.ndim:
        raise BadArgument(name, f"has {modulation.ndim} dimensions, {x_name} has {x.ndim}")
    if any(own not in (1, whole) for own, whole in zip(reversed(shape), reversed(against), strict=False)):
        raise BadArgument(name, f"is {list(modulation.shape)}, which does not broadcast over {x_name}, {list(x.shape)}")


def layout(modulation: Tensor, x: Tensor) -> ModulationLayout:
    """Return the layout of a modulation that was checked, over x `[B, S, D]` or `[S, D]`."""
    steps = [
        0 if size == 1 else stride for size, stride in zip(modulation.shape, modulation.stride(), strict=True)
    ]  # an axis of size 1 serves all
    if not steps:
        return ModulationLayout()
    channel = steps[-1]
    if modulation.ndim == 4:
        frames = modulation.shape[1]
        return ModulationLayout(steps[0], steps[1], 1 if frames == 1 else x.shape[1] // frames, channel)
    if modulation.ndim == 3:
        return ModulationLayout(steps[0], steps[1], 1, channel)
    if modulation.ndim == 2:
        return ModulationLayout(steps[0], 0, 1, channel) if x.ndim == 3 else ModulationLayout(0, steps[0], 1, channel)
    return ModulationLayout(channel_step=channel)


def aligned(tensor: Tensor, ndim: int) -> Tensor:
    """Return a tensor with leading axes of size 1, as broadcasting has it: `[S, D]` is then one row per token."""
    return tensor if tensor.ndim == ndim else tensor[(None,) * (ndim - tensor.ndim)]
