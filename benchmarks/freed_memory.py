"""How long copies are slow after memory was freed on the GPU: python3 benchmarks/freed_memory.py [GIB ...]

The driver wipes what is given back, in the background. The judge waits for the end of it (`judge/cuda/pace.py`).
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise

import torch

SIZE = 2**28
BUNCH = 4  # copies that are timed together, half a millisecond
SLOW = 0.96  # of the rate in the end
HOLDER = """
import sys, torch
held = torch.zeros(int(sys.argv[1]) << 30, dtype=torch.uint8, device="cuda")
torch.cuda.synchronize()
print("holds it", flush=True)
sys.stdin.readline()
"""


def rates(seconds: float, source: torch.Tensor, target: torch.Tensor) -> tuple[list[float], list[float]]:
    """In TB/s, and when each was seen, in milliseconds."""
    marks = [torch.Event(enable_timing=True, device="cuda") for _ in range(int(seconds / 0.5e-3) + 1)]
    target.copy_(source)
    marks[0].record()
    for mark in marks[1:]:
        for _ in range(BUNCH):
            target.copy_(source)
        mark.record()
    torch.cuda.synchronize()
    found = [2 * BUNCH * SIZE / (before.elapsed_time(after) * 1e9) for before, after in pairwise(marks)]
    return found, [marks[0].elapsed_time(mark) for mark in marks[1:]]


def by_torch(gib: int) -> Callable[[], None]:
    held = [torch.empty(gib << 30, dtype=torch.uint8, device="cuda")]

    def free() -> None:
        held.clear()
        torch.cuda.empty_cache()

    return free


def by_a_process(gib: int) -> Callable[[], None]:
    """That is killed while it holds so much."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(gib)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    if not holder.stdout.readline():
        raise SystemExit(f"no process could have {gib} GiB")

    def free() -> None:
        holder.kill()
        holder.wait()

    return free


def main() -> int:
    if not torch.cuda.is_available():
        print("this needs a GPU that torch can use", file=sys.stderr)
        return 2
    source, target = torch.zeros(2, SIZE, dtype=torch.uint8, device="cuda")
    rates(0.3, source, target)
    print(f"{'freed by':10} {'GiB':>5} {'slow for ms':>12} {'TB/s slow':>10} {'TB/s then':>10}")
    for gib in [int(word) for word in sys.argv[1:]] or [1, 4, 16, 64]:
        for name, hold in (("torch", by_torch), ("a process", by_a_process)):
            free = hold(gib)
            time.sleep(0.5)
            rates(0.1, source, target)
            free()
            found, when = rates(0.2 + 0.01 * gib, source, target)
            full = statistics.median(found[-20:])
            slow = [(at, rate) for at, rate in zip(when, found, strict=True) if rate < SLOW * full]
            until = slow[-1][0] if slow else 0.0
            between = statistics.median(rate for _, rate in slow) if slow else full
            print(f"{name:10} {gib:5} {until:12.1f} {between:10.2f} {full:10.2f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
