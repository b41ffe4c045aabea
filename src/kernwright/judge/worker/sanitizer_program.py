"""The program that runs under compute-sanitizer: it confines itself like a worker and calls one side on some rows.

Each tensor is a separate allocation, so that one byte beyond it is detected. Nothing is compared or timed here.
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
            # The frozen size and its odd neighbours: kernels run over at tails.
            sizes = {_call_name(case.row): case.row for case in cases_for(op, rows[name], task.file.neighbours)}
            for call, row in sizes.items():
                log.write(json.dumps({"began": call}) + "\n")
                log.flush()
                _call(side, functions[op.name], op, row, orders.device)
                log.write(json.dumps({"ended": call}) + "\n")
                log.flush()


def _call_name(row: Any) -> str:
    """Return a name with the sizes, because neighbours share the id of their row."""
    return " ".join([row.id, *(f"{axis}={size}" for axis, size in row.axes.items())])


def _meet_the_tool(device: str) -> None:
    """Create the device's context before the network is closed.

    The tool runs in another process and connects over the network until then. The connection stays open.
    """
    if device == "cpu":
        return
    with contextlib.suppress(OSError, AttributeError):  # without a driver the first tensor fails with a better message
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
