"""Argument checks that families share. Each names the argument that no implementation could take."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import torch
from torch import Tensor

from kernwright.ops._shared.modulation_layout import check_modulation
from kernwright.runtime.call import BadArgument, Call


def check_tokens(
    call: Call,
    modulations: Iterable[str] = (),
    affine: Iterable[str] = (),
    tokens: Iterable[str] = ("residual",),
    integers: Collection[str] = (),
) -> Tensor:
    """Check x `[..., D]` and the tensors beside it, and return x.

    `tokens` have the shape of x, `modulations` broadcast over it, and each of `affine` is `[D]`. Tensors that are not
    given are skipped. `integers` are not checked here.
    """
    x = call.tensors["x"]
    check_floating(call, but=integers)
    check_width(x)
    for name in tokens:
        if (own := call.tensors.get(name)) is not None:
            check_same_shape(name, own, x)
    for name in modulations:
        if (own := call.tensors.get(name)) is not None:
            check_modulation(name, own, x)
    check_affine(call, x, affine)
    return x


def check_floating(call: Call, but: Collection[str] = ()) -> None:
    """Check that all tensors hold floating point numbers. `but` names tensors that are not checked."""
    for name, tensor in call.tensors.items():
        if name not in but and not tensor.is_floating_point():
            raise BadArgument(
                name, f"is {tensor.dtype}, not floating point", "pass its dequantize()" if tensor.is_quantized else ""
            )


def check_width(x: Tensor, name: str = "x") -> None:
    """Check that x has an axis to norm over."""
    if x.ndim == 0:
        raise BadArgument(name, "has no dimension to norm over")


def check_affine(call: Call, x: Tensor, names: Iterable[str] = ("weight", "bias")) -> None:
    """Check that each of `names` is `[D]`, the width of x, or is not given."""
    for name in names:
        if (affine := call.tensors.get(name)) is not None and affine.shape != x.shape[-1:]:
            raise BadArgument(name, f"is {list(affine.shape)}, it must be {list(x.shape[-1:])}, the width of x")


def check_bias(call: Call, is_rms: bool, bias: str = "bias", weight: str = "weight") -> None:
    """Check that a bias belongs to a LayerNorm with a weight."""
    if bias in call.tensors and is_rms:
        raise BadArgument(bias, "an RMS norm has no bias")
    if bias in call.tensors and weight not in call.tensors:
        raise BadArgument(bias, f"comes only with a {weight}", f"pass a {weight} of ones")


def check_norm_type(call: Call) -> bool:
    """Return whether the norm is an RMS norm."""
    norm_type = call.arguments["norm_type"]
    if norm_type not in ("layer", "rms"):
        raise BadArgument("norm_type", f"is 'layer' or 'rms', not {norm_type!r}")
    return bool(norm_type == "rms")


def check_same_shape(name: str, own: Tensor, x: Tensor, x_name: str = "x") -> None:
    """Check that a tensor has the shape of x."""
    if own.shape != x.shape:
        raise BadArgument(name, f"is {list(own.shape)}, {x_name} is {list(x.shape)}")


def check_axes(name: str, own: Tensor, least: int, most: int | None = None) -> None:
    """Check the number of axes of a tensor."""
    if own.ndim < least or (most is not None and own.ndim > most):
        wanted = f"{least}" if most == least else f"at least {least}" if most is None else f"{least} to {most}"
        raise BadArgument(name, f"has {own.ndim} dimensions, it must have {wanted}")


def check_broadcast(name: str, own: Tensor, x: Tensor, x_name: str = "x") -> None:
    """Check that a tensor broadcasts over x by torch's rules, without making it larger."""
    check_broadcast_over(name, own, x.shape, x_name)


def check_broadcast_over(name: str, own: Tensor, shape: Sequence[int], described: str) -> None:
    """Check that a tensor broadcasts over a shape. `described` says in words what has that shape."""
    pairs = zip(reversed(own.shape), reversed(shape), strict=False)
    if own.ndim > len(shape) or any(size not in (1, whole) for size, whole in pairs):
        raise BadArgument(name, f"is {list(own.shape)}, which does not broadcast over {described}, {list(shape)}")


def check_split_heads(call: Call, name: str, cos: str, sin: str) -> None:
    """Check tokens `[B, S, H * D]` and their angles `[B, H, S, D/2]`."""
    x, angles = call.tensors[name], call.tensors[cos]
    check_axes(name, x, least=3)
    check_axes(cos, angles, least=4, most=4)
    batch, heads, tokens, half = angles.shape
    if tuple(x.shape[:2]) != (batch, tokens) or x.shape[2:].numel() != heads * 2 * half:
        raise BadArgument(cos, f"is {list(angles.shape)}, which is not [B, H, S, D/2] for {name}, {list(x.shape)}")
    check_broadcast(sin, call.tensors[sin], angles, cos)


def joint_shape(call: Call, names: Sequence[str]) -> torch.Size:
    """Return the shape of several tensors broadcast together. The first that does not fit those before it is named."""
    first, *others = names
    shape, so_far = call.tensors[first].shape, first
    for name in others:
        own = call.tensors[name]
        if any(one != two and 1 not in (one, two) for one, two in zip(own.shape[::-1], shape[::-1], strict=False)):
            raise BadArgument(name, f"is {list(own.shape)}, which does not broadcast with {so_far}, {list(shape)}")
        shape, so_far = broadcast_shape(shape, own.shape), f"{so_far} and {name}"
    return shape


def broadcast_shape(*shapes: Sequence[int]) -> torch.Size:
    """Return the shape of tensors of these shapes broadcast together."""
    return torch.broadcast_shapes(*shapes)  # type: ignore[no-untyped-call, no-any-return]
