"""Time kernwright.ops next to the baselines on production rows, without the judge, within minutes.

    python benchmarks/bench_beside.py [TASK ...] [--rows GLOB] [--baseline NAME ...] [--json FILE]

All sides of a row run in one process, one after the other in each of several rounds. `device` is the median round of a
CUDA graph over enough input sets to exceed the cache several times. `wall` is the median of single calls with a wait.
torch.compile takes a second or two per row, so by default it runs only for ops without a reduction, where it is the
peer to beat; --compile-all runs it for all. Nothing is verified here, so the figures are not evidence. Evidence comes
from the judge.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch
from bench_ops import COLD_BYTES, graph_of, seconds
from gpu_evidence import tasks_with_kernels

from kernwright.baselines.published import PublishedBaseline
from kernwright.core.errors import KernwrightError
from kernwright.judge.device.cuda.copying import copy_methods, whole_pages
from kernwright.judge.protocol.orders import RowSignature, SideOrders
from kernwright.judge.worker.entry import RowCall, load
from kernwright.ops.catalog import dispatcher
from kernwright.packages.store import Store
from kernwright.tasks.catalog import find_task
from kernwright.tasks.task import Task
from kernwright.tasks.tensor import ConcreteTensor
from kernwright.tasks.workload import Workload

ROUNDS, ROUND_S, WALLS = 7, 0.006, 60
OURS, COPY = "kernwright", "copy"

Side = Callable[..., Any]


def drawn(tensor: ConcreteTensor) -> torch.Tensor:
    dtype = getattr(torch, tensor.torch_dtype_name)
    own = torch.empty_strided(tensor.shape, tensor.strides, dtype=dtype, device="cuda")
    return own.normal_() if dtype.is_floating_point else own.random_(0, 2)


def called(task: Task, row: Workload, about: dict[str, Any]) -> Side:
    """Return a side as the judge's worker would call it."""
    op = task.op_of(row)
    side = SideOrders(op=op.name, **about)
    given = RowSignature(
        inputs=tuple(row.inputs),
        outputs=tuple(row.concrete_outputs().values()),
        scalars={**row.scalars},
        style="returns",
    )
    call = RowCall(side, load(side), given, "cuda").bind()
    return lambda *arguments: call(arguments)


def sides_of(task: Task, row: Workload, asked: argparse.Namespace) -> dict[str, Side]:
    op = task.op_of(row)
    own = {OURS: called(task, row, {"kind": "shipped"})}
    if asked.triton and "triton" in dispatcher(op.name).backends:
        scalars = {**row.scalars, "backend": "triton"}
        public = load(SideOrders(kind="shipped", op=op.name))
        own["triton"] = lambda *arguments: public(*arguments, **scalars)
    for name in asked.baseline:
        if name == "eager":
            own[name] = called(task, row, {"kind": "eager"})
        elif name == "compile":
            if op.contract == "exact" or asked.compile_all:
                own[name] = called(task, row, {"kind": "compile"})
        else:
            published = PublishedBaseline.find(name)
            if published.declines(op, row, torch.cuda.get_device_capability()) is None:
                orders, _ = published.orders([op.name], Store())
                own[name] = called(task, row, {"kind": "package", **orders})
    return own


def measured(task: Task, row: Workload, asked: argparse.Namespace) -> dict[str, Any]:
    """Return the microseconds of each side that ran, and the errors of the others."""
    count = max(2, min(64, COLD_BYTES // row.bytes_min + 1))
    sets = [[drawn(tensor) for tensor in row.concrete_inputs().values()] for _ in range(count)]
    buffers = [torch.empty(whole_pages(row.bytes_min), dtype=torch.uint8, device="cuda") for _ in range(count + 1)]
    replays: dict[str, Callable[[], None]] = {}
    device: dict[str, float] = {}
    wall: dict[str, float] = {}
    problems: dict[str, str] = {}
    for name, side in sides_of(task, row, asked).items():
        try:
            side(*sets[0])
            wall[name] = wall_us(side, sets)
            replays[name] = graph_of(side, sets)
        except Exception as error:  # an error of one package must not stop the others
            problems[name] = f"{type(error).__name__}: {error}"[:200]
            torch.cuda.synchronize()
    copies = [[buffers[i + 1], buffers[i]] for i in range(count)]
    replays |= {f"{COPY} {number}": graph_of(way, copies) for number, way in enumerate(copy_methods("cuda"))}
    found: dict[str, list[float]] = {name: [] for name in replays}
    times = {}
    for name, replay in replays.items():
        seconds(replay, 2)
        times[name] = max(1, int(ROUND_S / max(seconds(replay, 1), 1e-6)))
    for _ in range(ROUNDS):
        for name, replay in replays.items():
            found[name].append(seconds(replay, times[name]) / times[name] / count * 1e6)
    device = {name: statistics.median(values) for name, values in found.items()}
    copy = min(device.pop(name) for name in list(device) if name.startswith(COPY))
    return {"task": task.name, "row": row.id, "op": row.op, "bytes": row.bytes_min, "copy": copy,
            "device": device, "wall": wall, "problems": problems}  # fmt: skip


def wall_us(side: Side, sets: list[list[torch.Tensor]]) -> float:
    for own in sets[:3]:
        side(*own)
    taken = []
    for number in range(WALLS):
        own = sets[number % len(sets)]
        torch.cuda.synchronize()
        start = time.perf_counter()
        side(*own)
        torch.cuda.synchronize()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken) * 1e6


def line(found: dict[str, Any]) -> str:
    device, wall = found["device"], found["wall"]
    own = device.get(OURS, math.nan)
    cells = [f"{found['row'][:44]:44}", f"{found['bytes'] / 1e6:8.1f}", f"{own:9.2f}", f"{found['copy'] / own:6.0%}"]
    for name in device:
        if name != OURS:
            by_wall = wall.get(name, math.nan) / wall.get(OURS, math.nan)
            cells.append(f"{name.split('@')[0]} {device[name] / own:.3f} wall {by_wall:.2f}")
    cells += [f"{name}: {why}" for name, why in found["problems"].items()]
    return "  ".join(cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", help="all that have kernels, if none is named")
    parser.add_argument("--rows", default="*", help="a glob over the rows' ids")
    parser.add_argument("--baseline", action="append", help="compile and sglang@0.5.23, if none is named")
    parser.add_argument("--compile-all", action="store_true", help="torch.compile of norms, too")
    parser.add_argument("--triton", action="store_true", help="our own Triton kernels, too")
    parser.add_argument("--json", type=Path, help="where the figures go, too")
    asked = parser.parse_args()
    asked.baseline = asked.baseline or ["compile", "sglang@0.5.23"]
    if not torch.cuda.is_available():
        sys.exit("bench_beside: torch sees no CUDA device")
    figures: list[dict[str, Any]] = []
    with torch.no_grad():
        for task in map(find_task, asked.tasks or tasks_with_kernels()):
            print(f"{task.name}: row, MB, device us, share of a copy; each side's time over ours", flush=True)
            for row in task.select("production"):
                if not fnmatchcase(row.id, asked.rows):
                    continue
                try:
                    figures.append(measured(task, row, asked))
                except KernwrightError as error:
                    sys.exit(f"bench_beside: {error}")
                print(line(figures[-1]), flush=True)
                torch.cuda.empty_cache()
                if asked.json:
                    asked.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
