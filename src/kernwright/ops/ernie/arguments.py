"""Arguments of ERNIE's ops: what is wrong for every implementation, and what comes out.

Modulations broadcast as torch has it, so `[S, D]` is a row per token: these ops know no `[B, D]`, and no frames.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from kernwright.core.op import Op
from kernwright.ops._shared.checks import broadcast_shape, check_floating, check_width, joint_shape
from kernwright.runtime.call import Call
from kernwright.runtime.outputs import Promise, shaped_like


def check(call: Call) -> None:
    check_floating(call)
    check_width(call.first, call.op.activations[0])
    joint_shape(call, [parameter.name for parameter in call.op.tensor_parameters])


def result_shapes(op: Op, tensors: Sequence[Tensor]) -> list[torch.Size]:
    """The sum is of residual, update and gate; what is modulated has the shape of all."""
    shapes = [own.shape for own in tensors]
    return [broadcast_shape(*(shapes[:3] if name == "residual_out" else shapes)) for name in op.outputs]


def promise_of(op: Op) -> Promise:
    def promise(tensors: Sequence[Tensor | None], device: str | None = None) -> tuple[Tensor, ...]:
        given = [own for own in tensors if own is not None]
        return tuple(shaped_like(given[0], shape, device=device) for shape in result_shapes(op, given))

    return promise
