"""The public calls: the shortest way from Python to a kernel that is known to fit, and the dispatcher for all else.

A small kernel takes 2 us and its launch several, so what stands before the launch is counted: no binding of signatures,
no look at shapes. The foreign function checks the tensors itself, and answers whether it took them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from kernwright.ops.definition import Contract
from kernwright.ops.norm_modulation import definition, traced
from kernwright.ops.norm_modulation.implementations import DISPATCHERS
from kernwright.runtime.preference import Backend

_plain = DISPATCHERS["norm_scale_shift"]
_behind_residual = DISPATCHERS["residual_norm_scale_shift"]
_is_compiling, _is_grad_enabled = torch.compiler.is_compiling, torch.is_grad_enabled
# Whoever watches or rewrites calls must see an op of torch.library: a compiler, a mode, a transform such as vmap, a
# class of tensors of its own. Such a tensor may have no memory at all.
_modes, _transforms = torch._C._len_torch_dispatch_stack, torch._C._functorch.peek_interpreter_stack


def norm_scale_shift(
    x: Tensor,
    scale: Tensor,
    shift: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    norm_type: str = "layer",
    eps: float = 1e-6,
    backend: Backend | None = None,
    contract: Contract | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """norm(x) * (1 + scale) + shift, over x `[B, S, D]`.

    scale and shift: one number, `[D]`, `[B, D]`, `[B, 1, D]`, `[B, S, D]`, or `[B, F, 1, D]` per frame of S / F tokens,
    each in a dtype of its own. norm_type: "layer" or "rms". backend: "cuda", "cpu", "triton" or "torch", for this call.
    contract: "exact" runs the eager chain. out must not overlap the inputs.
    """
    given = (x, scale, shift, weight, bias)
    if _is_compiling() or type(x) is not Tensor or _modes():
        return _watched_plain(given, norm_type, eps, backend, contract, out)
    launch = _plain.latest(backend, contract)
    if launch is not None and not (_is_grad_enabled() and _any_trains(given)):
        y = torch.empty_like(x) if out is None else out
        try:
            if launch(x, scale, shift, weight, bias, norm_type, eps, y):
                return y
        except RuntimeError:
            if not _is_without_memory(x):
                raise
    if _transforms() is not None:
        return _watched_plain(given, norm_type, eps, backend, contract, out)
    scalars = {"norm_type": norm_type, "eps": eps}
    return _plain.run(given, scalars, backend, contract, out)  # type: ignore[no-any-return]


def residual_norm_scale_shift(
    x: Tensor,
    residual: Tensor,
    scale: Tensor,
    shift: Tensor,
    gate: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    norm_type: str = "layer",
    eps: float = 1e-6,
    backend: Backend | None = None,
    contract: Contract | None = None,
    out: Sequence[Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """r = residual + gate * x (no gate: residual + x); returns norm(r) * (1 + scale) + shift, and r.

    The gate has the layouts of scale and shift; all else as in norm_scale_shift. out: both tensors.
    """
    given = (x, residual, scale, shift, gate, weight, bias)
    if _is_compiling() or type(x) is not Tensor or _modes():
        return _watched_residual(given, norm_type, eps, backend, contract, out)
    launch = _behind_residual.latest(backend, contract)
    if launch is not None and not (_is_grad_enabled() and _any_trains(given)):
        y, total = (torch.empty_like(x), torch.empty_like(x)) if out is None else out
        try:
            if launch(x, residual, scale, shift, gate, weight, bias, norm_type, eps, y, total):
                return y, total
        except RuntimeError:
            if not _is_without_memory(x):
                raise
    if _transforms() is not None:
        return _watched_residual(given, norm_type, eps, backend, contract, out)
    scalars = {"norm_type": norm_type, "eps": eps}
    return _behind_residual.run(given, scalars, backend, contract, out)  # type: ignore[no-any-return]


Given = tuple[Tensor | None, ...]


def _watched_plain(
    given: Given, norm_type: str, eps: float, backend: str | None, contract: str | None, out: Tensor | None
) -> Tensor:
    if _is_grad_enabled() and _any_trains(given):  # traced as what it is: torch knows its gradient
        reference = definition.norm_scale_shift.reference
        return reference(*given, norm_type=norm_type, eps=eps)  # type: ignore[return-value]
    result = traced.norm_scale_shift(*given, norm_type, eps, backend, contract)
    return result if out is None else out.copy_(result)


def _watched_residual(
    given: Given, norm_type: str, eps: float, backend: str | None, contract: str | None, out: Sequence[Tensor] | None
) -> tuple[Tensor, Tensor]:
    if _is_grad_enabled() and _any_trains(given):
        reference = definition.residual_norm_scale_shift.reference
        return reference(*given, norm_type=norm_type, eps=eps)  # type: ignore[return-value]
    y, total = traced.residual_norm_scale_shift(*given, norm_type, eps, backend, contract)
    return (y, total) if out is None else (out[0].copy_(y), out[1].copy_(total))


def _any_trains(tensors: Given) -> bool:
    return any(tensor is not None and tensor.requires_grad for tensor in tensors)


def _is_without_memory(x: Tensor) -> bool:
    """What no foreign function can be given: found out by its error, since to ask before every call would cost."""
    return x.is_meta or _transforms() is not None
