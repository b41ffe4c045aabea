"""A single call of one side on one row, outside of a session: for the sanitizer and for profilers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from kernwright.core.op import Op
from kernwright.judge.numerics.inputs import draw_inputs
from kernwright.judge.protocol.orders import RowSignature, SideOrders
from kernwright.judge.worker.entry import RowCall
from kernwright.tasks.workload import Workload


def single_call(
    side: SideOrders, function: Callable[..., Any], op: Op, row: Workload, device: str
) -> Callable[[], Any]:
    """Return a call with random inputs, which can be repeated. This does not run it.

    Each tensor is a separate allocation of the exact size, at the offset and with the strides that the row says.
    """
    generator = torch.Generator(device=device).manual_seed(1)

    def noise(tensor: Any) -> Any:
        return torch.randn(tensor.shape, generator=generator, device=device)

    contents = draw_inputs(op, row, "normal", noise, generator)
    arguments: list[Any] = []
    for parameter in op.tensor_parameters:
        spec = row.concrete_inputs().get(parameter.name)
        if spec is None:
            arguments.append(None)
            continue
        dtype = getattr(torch, spec.torch_dtype_name)
        base = torch.empty(spec.offset + spec.span_bytes // spec.item_bytes, dtype=dtype, device=device)
        tensor = base.as_strided(spec.shape, spec.strides, spec.offset)
        arguments.append(tensor.copy_(contents[parameter.name]))
    signature = RowSignature(
        inputs=tuple(parameter.name for parameter in op.tensor_parameters),
        outputs=tuple(row.concrete_outputs().values()),
        scalars=op.scalar_defaults | row.scalars,
        style="returns",
    )
    bound = RowCall(side, function, signature, torch.device(device).type).bind()
    return lambda: bound(arguments)
