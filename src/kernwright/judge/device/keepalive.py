"""Keep-alive of the processor that a device's workers run on."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from kernwright.judge.device.device import Device
from kernwright.judge.process.cpu_keepalive import Vigil


@contextlib.contextmanager
def vigil_over(device: Device) -> Iterator[None]:
    """From here to the end the device's workers have one, where their processor is theirs alone."""
    processor = device.worker_processor() if device.has_kernels else None
    if processor is None or processor in os.sched_getaffinity(0):
        yield
        return
    device.vigil = Vigil(processor)
    try:
        yield
    finally:
        device.vigil.end()
        device.vigil = None
