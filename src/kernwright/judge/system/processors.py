"""Processors: which of them share a core or a memory, as the kernel tells it; and the judge's own place among them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

SYSTEM = Path("/sys/devices/system/cpu")
SPARE_PROCESSORS = 4  # with more, the judge can keep off the workers'


def processors_near(processor: int, system: Path = SYSTEM) -> set[int]:
    """Those that share its memory, of those that we may use: what a process allocates lies near where it runs."""
    usable = os.sched_getaffinity(0)
    for node in system.glob(f"cpu{processor}/node*/cpulist"):
        return usable & _listed(node.read_text()) or {processor}
    return usable


def processors_of_core(processor: int, system: Path = SYSTEM) -> set[int]:
    """Itself, and those that run on the same core: what one of them does, the others feel."""
    try:
        return {processor} | _listed((system / f"cpu{processor}" / "topology" / "thread_siblings_list").read_text())
    except (OSError, ValueError):
        return {processor}  # the machine does not say


def _listed(text: str) -> set[int]:
    """As the kernel writes them: 0-3,8."""
    spans = [word.split("-") for word in text.strip().split(",") if word]
    return {number for span in spans for number in range(int(span[0]), int(span[-1]) + 1)}


@contextlib.contextmanager
def apart_from(processor: int | None, system: Path = SYSTEM) -> Iterator[None]:
    """Keeps this thread off the workers' processor and its core, where there are others enough: a worker that wakes up
    must not find the judge there, nor share a core with a judge that waits for it awake."""
    usable = os.sched_getaffinity(0)
    moved = processor is not None and len(usable) > SPARE_PROCESSORS
    if processor is not None and moved:
        others = usable - processors_of_core(processor, system)
        with contextlib.suppress(OSError):  # a sandbox may refuse it; then they share
            os.sched_setaffinity(0, others if len(others) >= SPARE_PROCESSORS else usable - {processor})
    try:
        yield
    finally:
        if moved:
            with contextlib.suppress(OSError):
                os.sched_setaffinity(0, usable)
