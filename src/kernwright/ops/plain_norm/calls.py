"""The public calls: the shortest way from Python to a kernel that is known to fit, and the dispatcher for all else.

As in norm_modulation: no binding of signatures, no look at shapes. The foreign function checks the tensors itself, and
answers whether it took them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernwright.ops.definition import Contract
from kernwright.ops.plain_norm import definition, traced
from kernwright.ops.plain_norm.implementations import DISPATCHERS
from kernwright.runtime.preference import Backend

_layer, _rms = DISPATCHERS["layer_norm"], DISPATCHERS["rms_norm"]
_is_compiling, _is_grad_enabled = torch.compiler.is_compiling, torch.is_grad_enabled
# Whoever watches or rewrites calls must see an op of torch.library: a compiler, a mode, a transform such as vmap, a
# class of tensors of its own. Such a tensor may have no memory at all.
_modes, _transforms = torch._C._len_torch_dispatch_stack, torch._C._functorch.peek_interpreter_stack


def layer_norm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    eps: float = 1e-6,
    backend: Backend | None = None,
    contract: Contract | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """(x - mean(x)) * rsqrt(var(x) + eps) * weight + bias, over the last axis of x.

    weight and bias: `[D]`, each in a dtype of its own. backend: "cuda", "triton" or "torch", for this call. contract:
    "exact" runs torch's own norm. out must not overlap the inputs.
    """
    if _is_compiling() or type(x) is not Tensor or _modes():
        return _watched_layer(x, weight, bias, eps, backend, contract, out)
    launch = _layer.latest(backend, contract)
    if launch is not None and not (_is_grad_enabled() and _any_trains(x, weight, bias)):
        y = torch.empty_like(x) if out is None else out
        try:
            if launch(x, weight, bias, eps, y):
                return y
        except RuntimeError:
            if not _is_without_memory(x):
                raise
    if _transforms() is not None:
        return _watched_layer(x, weight, bias, eps, backend, contract, out)
    return _layer.run((x, weight, bias), {"eps": eps}, backend, contract, out)  # type: ignore[no-any-return]


def rms_norm(
    x: Tensor,
    weight: Tensor | None = None,
    *,
    eps: float = 1e-6,
    backend: Backend | None = None,
    contract: Contract | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """x * rsqrt(mean(x ** 2) + eps) * weight, over the last axis of x; all else as in layer_norm."""
    if _is_compiling() or type(x) is not Tensor or _modes():
        return _watched_rms(x, weight, eps, backend, contract, out)
    launch = _rms.latest(backend, contract)
    if launch is not None and not (_is_grad_enabled() and _any_trains(x, weight)):
        y = torch.empty_like(x) if out is None else out
        try:
            if launch(x, weight, eps, y):
                return y
        except RuntimeError:
            if not _is_without_memory(x):
                raise
    if _transforms() is not None:
        return _watched_rms(x, weight, eps, backend, contract, out)
    return _rms.run((x, weight), {"eps": eps}, backend, contract, out)  # type: ignore[no-any-return]


def _watched_layer(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, backend: str | None, contract: str | None,
    out: Tensor | None,
) -> Tensor:  # fmt: skip
    if _is_grad_enabled() and _any_trains(x, weight, bias):  # traced as what it is: torch knows its gradient
        return definition.layer_norm.reference(x, weight, bias, eps=eps)  # type: ignore[return-value]
    result = traced.layer_norm(x, weight, bias, eps, backend, contract)
    return result if out is None else out.copy_(result)


def _watched_rms(
    x: Tensor, weight: Tensor | None, eps: float, backend: str | None, contract: str | None, out: Tensor | None
) -> Tensor:
    if _is_grad_enabled() and _any_trains(x, weight):
        return definition.rms_norm.reference(x, weight, eps=eps)  # type: ignore[return-value]
    result = traced.rms_norm(x, weight, eps, backend, contract)
    return result if out is None else out.copy_(result)


def _any_trains(*tensors: Tensor | None) -> bool:
    return any(tensor is not None and tensor.requires_grad for tensor in tensors)


def _is_without_memory(x: Tensor) -> bool:
    """What no foreign function can be given: found out by its error, since to ask before every call would cost."""
    return x.is_meta or _transforms() is not None
