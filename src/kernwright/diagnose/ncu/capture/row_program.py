"""The program that ncu profiles: it calls one side on one row, and marks the calls that count.

python -m kernwright.diagnose.ncu.capture.row_program ORDERS.json
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from kernwright.diagnose.ncu.capture.row_orders import RowOrders
from kernwright.judge.worker.entry import load
from kernwright.judge.worker.single_call import single_call
from kernwright.tasks.task import load_task


def main() -> None:
    orders = RowOrders.model_validate_json(Path(sys.argv[1]).read_text(encoding="utf-8"))
    torch.set_grad_enabled(False)
    task = load_task(Path(orders.task))
    row = next(row for row in task.rows if row.id == orders.row)
    on_gpu = orders.device != "cpu"
    call = single_call(orders.side, load(orders.side), task.op_of(row), row, orders.device)
    for _ in range(orders.warm_up):
        call()
    if on_gpu:
        torch.cuda.synchronize()
        torch.cuda.profiler.start()  # type: ignore[no-untyped-call]
    for _ in range(orders.calls):
        call()
    if on_gpu:
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]
    print(f"{orders.calls} call(s) of {orders.side.op} on {row.id}", file=sys.stderr)


if __name__ == "__main__":
    main()
