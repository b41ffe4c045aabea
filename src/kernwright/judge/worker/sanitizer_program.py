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

from kernwright.judge.protocol.orders import SanitizerOrders, SideOrders
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

    from kernwright.judge.worker.single_call import single_call

    single_call(side, function, op, row, device)()
    if device != "cpu":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
