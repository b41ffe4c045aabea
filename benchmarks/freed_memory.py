"""Measure how long copies are slow after memory was freed on the GPU: python3 benchmarks/freed_memory.py [GIB ...]

The driver wipes freed memory in the background. The judge waits until this has ended
(`judge/device/cuda/memory/memory_speed.py`). Memory that is wiped while a killed process is removed does not show.
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
SLOW = 0.96  # share of the final copy rate below which a bunch counts as slow
FAST_RUN = 5  # bunches in a row that are not slow, after which the measurement ends
HOLDER = """
import sys, torch
held = torch.zeros(int(sys.argv[1]) << 30, dtype=torch.uint8, device="cuda")
torch.cuda.synchronize()
print("holds it", flush=True)
sys.stdin.readline()
"""


def events(seconds: float) -> list[torch.Event]:
    """Return the number of bunches of copies that fill this time, plus one."""
    return [torch.Event(enable_timing=True, device="cuda") for _ in range(int(seconds / 0.5e-3) + 1)]


def rates(marks: list[torch.Event], source: torch.Tensor, target: torch.Tensor) -> tuple[list[float], list[float]]:
    """Return the rates in TB/s and their times in milliseconds."""
    marks[0].record()
    for mark in marks[1:]:
        for _ in range(BUNCH):
            target.copy_(source)
        mark.record()
    torch.cuda.synchronize()
    found = [2 * BUNCH * SIZE / (before.elapsed_time(after) * 1e9) for before, after in pairwise(marks)]
    return found, [marks[0].elapsed_time(mark) for mark in marks[1:]]


def slow_until(found: list[float], full: float) -> int:
    """Return the number of bunches in the first slow stretch, which ends with a few fast ones."""
    slow = [rate < SLOW * full for rate in found]
    return next((end for end in range(len(slow)) if not any(slow[end : end + FAST_RUN])), len(slow))


def by_torch(gib: int) -> Callable[[], None]:
    held = [torch.empty(gib << 30, dtype=torch.uint8, device="cuda")]

    def free() -> None:
        held.clear()
        torch.cuda.empty_cache()

    return free


def by_a_process(gib: int) -> Callable[[], None]:
    """Start a process that holds this much memory, and kill it."""
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
    rates(events(0.3), source, target)
    print(f"{'freed by':10} {'GiB':>5} {'slow for ms':>12} {'TB/s slow':>10} {'TB/s then':>10}")
    for gib in [int(word) for word in sys.argv[1:]] or [1, 4, 16, 64]:
        if gib << 30 > torch.cuda.mem_get_info()[0] - 2**30:
            print(f"{gib} GiB are not free here", file=sys.stderr)
            continue
        for name, hold in (("torch", by_torch), ("a process", by_a_process)):
            free = hold(gib)
            time.sleep(0.5)
            rates(events(0.1), source, target)
            marks = events(0.2 + 0.01 * gib)
            free()
            found, when = rates(marks, source, target)
            full = statistics.median(found[-20:])
            slow = slow_until(found, full)
            until = when[slow - 1] if slow else 0.0
            between = statistics.median(found[:slow]) if slow else full
            print(f"{name:10} {gib:5} {until:12.1f} {between:10.2f} {full:10.2f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
