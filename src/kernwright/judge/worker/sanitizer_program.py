"""The program that compute-sanitizer watches: shuts itself in like a worker, then calls one side on some rows.

Each tensor is an allocation of its own, so that one byte beyond it is beyond everything. Nothing is compared and
nothing is timed here: that is the judge's.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import sys
from pathlib import Path
from typing import Any

from kernwright.judge.protocol.orders import RowSignature, SanitizerOrders, SideOrders
from kernwright.judge.system.sandbox import Sandbox
from kernwright.judge.worker.confine import confine


def main() -> None:
    orders = SanitizerOrders.model_validate_json(Path(sys.argv[1]).read_text(encoding="utf-8"))
    _meet_the_tool(orders.device)
    isolation = confine(Sandbox.from_argument(orders.sandbox), os.getppid())
    import torch

    from kernwright.judge.numerics.cases import cases_for
    from kernwright.judge.worker.entry import load
    from kernwright.tasks.task import load_task

    torch.set_grad_enabled(False)
    task = load_task(Path(orders.task))
    rows = {row.id: row for row in task.rows}
    functions: dict[str, Any] = {}
    with Path(orders.log).open("a", encoding="utf-8") as log:
        log.write(json.dumps({"missing": isolation.missing}) + "\n")
        for name in orders.rows:
            op = task.op_of(rows[name])
            side = orders.side.for_op(op.name)
            if op.name not in functions:
                functions[op.name] = load(side)
            # The row's own size, and the odd ones beside it: tails are where kernels run over.
            sizes = {_call_name(case.row): case.row for case in cases_for(op, rows[name], task.file.neighbours)}
            for call, row in sizes.items():
                log.write(json.dumps({"began": call}) + "\n")
                log.flush()
                _call(side, functions[op.name], op, row, orders.device)
                log.write(json.dumps({"ended": call}) + "\n")
                log.flush()


def _call_name(row: Any) -> str:
    """A neighbour has its row's id, and sizes of its own."""
    return " ".join([row.id, *(f"{axis}={size}" for axis, size in row.axes.items())])


def _meet_the_tool(device: str) -> None:
    """It watches from a process of its own and is spoken to over the network, until the device's context is there.
    Behind the walls there is no network; what is connected by then stays so."""
    if device == "cpu":
        return
    with contextlib.suppress(OSError, AttributeError):  # no driver: the first tensor will say so better
        driver, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
        driver.cuInit(0)
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), int(device.partition(":")[2] or 0))
        driver.cuCtxSetCurrent(context)


def _call(side: SideOrders, function: Any, op: Any, row: Any, device: str) -> None:
    import torch

    from kernwright.judge.numerics.inputs import draw_inputs
    from kernwright.judge.worker.entry import RowCall

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
    RowCall(side, function, signature, torch.device(device).type).bind()(arguments)
    if device != "cpu":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
