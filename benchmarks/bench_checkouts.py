"""Compare the device times of the ops in two checkouts, row by row, in one run on one GPU.

    python benchmarks/bench_checkouts.py --before DIR --after DIR [--rows 20] [--json FILE]

Each checkout runs in a process of its own, and the first one in a second process too: its twin shows the noise. The
processes take turns on every row, in mirrored order, so that all meet the same clock and temperature. A time is the
median over the turns of the fastest replay of a graph, over input sets that exceed the cache several times. `host` is
the time that a public call takes to return, on the smallest row of each family, in the same turns. The figures tell
whether a change of structure changed a kernel. They are not evidence: evidence comes from the judge.

Exit status 1 if a row's time differs by more than --limit (1 %) and by more than the twin's.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

COLD_BYTES = 512 * 2**20  # several times the cache of every present GPU
TURNS = 12  # each turn has one block of every process
REPLAYS = 7  # per block; the fastest counts
SETTLE_S = 0.6  # the driver wipes freed memory in the background, which slows all work meanwhile
MOST_SETS = 512
HOST_CALLS = 2000
# One family per line: its tasks. The rows of a family are spread over sizes.
FAMILIES = {
    "norm_modulation": ("norm_scale_shift",),
    "modulation": ("fuse_scale_shift", "residual_gate_add"),
    "residual_norm": ("add_norm",),
    "plain_norm": ("norm_infer",),
    "norm_tanh": ("norm_tanh_mul_add",),
    "ernie": ("ernie_adaln_residual_gate",),
    "ltx2_modulate": ("ltx2_dual_modulate", "ltx2_rms_adaln", "ltx2_rms_adaln_table"),
}


def chosen_rows(count: int) -> list[tuple[str, str, str]]:
    """Return (family, task, row id) of production rows, spread over families and, inside a family, over sizes."""
    from kernwright.ops import FAMILIES as OPS
    from kernwright.tasks.catalog import find_task

    groups: list[list[tuple[str, str, str]]] = []
    for family, tasks in FAMILIES.items():
        found = [
            (row.bytes_min, (family, task, row.id))
            for task in tasks
            for row in find_task(task).rows
            if row.set == "production" and OPS.get(row.op) == family
        ]
        groups.append([key for _, key in sorted(found)])
    share = math.ceil(count / len(groups))
    picked = []
    for group in groups:
        wanted = min(share, len(group))
        picked += [group[(2 * number + 1) * len(group) // (2 * wanted)] for number in range(wanted)]
    return picked


class Rows:
    """The rows of one checkout as CUDA graphs."""

    def __init__(self) -> None:
        self.graphs: dict[str, tuple[Any, int]] = {}

    def prepare(self, task: str, row_id: str) -> dict[str, Any]:
        """Capture one row. All earlier graphs are dropped, because memory suffices for one row at a time."""
        import torch

        from kernwright import ops
        from kernwright.tasks.catalog import find_task

        self.graphs.clear()
        torch.cuda.empty_cache()
        row = next(row for row in find_task(task).rows if row.id == row_id)
        sets = [_inputs(row) for _ in range(min(MOST_SETS, max(2, COLD_BYTES // max(1, row.bytes_min))))]
        call = getattr(ops, row.op)
        kept = [call(**tensors, **row.scalars) for tensors in sets]
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            kept = [call(**tensors, **row.scalars) for tensors in sets]
        self.graphs[row_id] = graph, len(sets)
        self.kept, self.one = kept, lambda: call(**sets[0], **row.scalars)
        return {"calls": len(sets)}

    def replay_us(self, row_id: str) -> float:
        import torch

        graph, calls = self.graphs[row_id]
        graph.replay()
        times = []
        for _ in range(REPLAYS):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end) * 1e3 / calls)
        return min(times)

    def host_us(self) -> float:
        """Return the time that one call takes to return, without waiting for the device."""
        import torch

        call, times = self.one, []
        for _ in range(5):
            torch.cuda.synchronize()
            start = time.perf_counter_ns()
            for _ in range(HOST_CALLS // 5):
                call()
            times.append((time.perf_counter_ns() - start) / (HOST_CALLS // 5) / 1e3)
        torch.cuda.synchronize()
        return statistics.median(times)


def _inputs(row: Any) -> dict[str, Any]:
    import torch

    dtypes = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
    made = {}
    for name, tensor in row.concrete_inputs().items():
        extent = 1 + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.strides, strict=True))
        if tensor.dtype in dtypes:
            flat = torch.randn(extent, device="cuda", dtype=dtypes[tensor.dtype])
        else:
            kind = {"int32": torch.int32, "i32": torch.int32, "bool": torch.bool}.get(tensor.dtype, torch.int64)
            flat = torch.randint(0, 2, (extent,), device="cuda").to(kind)
        made[name] = flat.as_strided(tuple(tensor.shape), tuple(tensor.strides))
    return made


def serve() -> None:
    """Answer requests of the driver, one JSON line each."""
    rows, out = Rows(), os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # sends the output of libraries to stderr
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        print(json.dumps(getattr(rows, name)(*arguments)), file=out, flush=True)


class Checkout:
    """One checkout in a process of its own."""

    def __init__(self, folder: Path, bundle: str) -> None:
        paths = [str(folder / "src"), bundle, os.environ.get("PYTHONPATH", "")]
        env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "KERNWRIGHT_STRICT": "1"}
        command = [sys.executable, str(Path(__file__).resolve()), "--serve"]
        self.process = subprocess.Popen(
            command, cwd=folder, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def ask(self, name: str, *arguments: str) -> Any:
        assert self.process.stdin is not None and self.process.stdout is not None
        print(json.dumps([name, *arguments]), file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"a checkout's process ended with {self.process.wait()} during {name} {arguments}")
        return json.loads(answer)


def compare(checkouts: Sequence[Checkout], keys: Sequence[tuple[str, str, str]]) -> list[dict[str, Any]]:
    """Measure every row in all processes: before, after, and before's twin."""
    found, hosts_of = [], set()
    names = ("before_us", "after_us", "twin_us")
    for family, task, row in keys:
        for own in checkouts:
            own.ask("prepare", task, row)
        time.sleep(SETTLE_S)
        before, after, twin = (statistics.median(own) for own in _taken_in_turns(checkouts, "replay_us", row))
        entry = {"family": family, "row": row, **dict(zip(names, (before, after, twin), strict=True))}
        entry |= {"ratio": after / before, "noise": twin / before}
        if family not in hosts_of:
            hosts_of.add(family)
            hosts = (min(own) for own in _taken_in_turns(checkouts, "host_us"))
            entry |= {f"host_{name}": host for name, host in zip(names, hosts, strict=True)}
        found.append(entry)
        host = " host " + " ".join(f"{entry[f'host_{name}']:.2f}" for name in names) if "host_after_us" in entry else ""
        print(
            f"{family:16} {row:40} {before:9.2f} {after:9.2f} us {after / before:7.4f} {twin / before:7.4f}{host}",
            flush=True,
        )
    return found


def _taken_in_turns(checkouts: Sequence[Checkout], name: str, *arguments: str) -> list[list[float]]:
    times: list[list[float]] = [[] for _ in checkouts]
    for turn in range(TURNS):
        order = range(len(checkouts)) if turn % 2 == 0 else reversed(range(len(checkouts)))
        for side in order:
            times[side].append(checkouts[side].ask(name, *arguments))
    return times


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--before", type=Path, help="checkout to compare with")
    parser.add_argument("--after", type=Path, default=Path.cwd(), help="checkout to compare; the present one")
    parser.add_argument("--rows", type=int, default=20, help="number of rows over all families")
    parser.add_argument("--bundle", default="", help="folder of packages that `kernwright bundle` made")
    parser.add_argument("--limit", type=float, default=0.01, help="largest relative difference of a row's time")
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args()
    if options.serve:
        serve()
        return 0
    if options.before is None:
        parser.error("--before DIR is needed")
    folders = (options.before, options.after, options.before)
    found = compare([Checkout(folder.resolve(), options.bundle) for folder in folders], chosen_rows(options.rows))
    for name in ("ratio", "noise"):
        worst = max(found, key=lambda entry: abs(entry[name] - 1))
        print(f"{len(found)} rows; largest {name} {100 * (worst[name] - 1):+.2f} % on {worst['row']}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    return int(any(abs(own["ratio"] - 1) > max(options.limit, abs(own["noise"] - 1)) for own in found))


if __name__ == "__main__":
    sys.exit(main())
