"""Processors: find those that share a core or a memory node, and keep the judge away from the workers' processor."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

SYSTEM = Path("/sys/devices/system/cpu")
SPARE_PROCESSORS = 4  # the least number with which the judge can avoid the workers' processor


def processors_near(processor: int, system: Path = SYSTEM) -> set[int]:
    """Return the usable processors of the same memory node."""
    usable = os.sched_getaffinity(0)
    for node in system.glob(f"cpu{processor}/node*/cpulist"):
        return usable & _listed(node.read_text()) or {processor}
    return usable


def processors_of_core(processor: int, system: Path = SYSTEM) -> set[int]:
    """Return the processors of the same core, which influence each other."""
    try:
        return {processor} | _listed((system / f"cpu{processor}" / "topology" / "thread_siblings_list").read_text())
    except (OSError, ValueError):
        return {processor}  # the machine does not tell


def _listed(text: str) -> set[int]:
    """Return the processors of a kernel list such as `0-3,8`."""
    spans = [word.split("-") for word in text.strip().split(",") if word]
    return {number for span in spans for number in range(int(span[0]), int(span[-1]) + 1)}


@contextlib.contextmanager
def apart_from(processor: int | None, system: Path = SYSTEM) -> Iterator[None]:
    """Keep this thread off the workers' processor and its core, if there are enough others.

    A worker that wakes up must not find the judge there, nor share a core with a judge that spins.
    """
    usable = os.sched_getaffinity(0)
    moved = processor is not None and len(usable) > SPARE_PROCESSORS
    if processor is not None and moved:
        others = usable - processors_of_core(processor, system)
        with contextlib.suppress(OSError):  # a sandbox may refuse it; then they share the processor
            os.sched_setaffinity(0, others if len(others) >= SPARE_PROCESSORS else usable - {processor})
    try:
        yield
    finally:
        if moved:
            with contextlib.suppress(OSError):
                os.sched_setaffinity(0, usable)
