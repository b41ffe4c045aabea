"""Keep-alive for the processor that a device's workers run on."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from kernwright.judge.device.device import Device
from kernwright.judge.process.cpu_keepalive import CpuKeepalive


@contextlib.contextmanager
def keep_processor_awake(device: Device) -> Iterator[None]:
    """Run a keep-alive inside the context, if the device's workers have a processor to themselves."""
    processor = device.worker_processor() if device.has_kernels else None
    if processor is None or processor in os.sched_getaffinity(0):
        yield
        return
    device.keepalive = CpuKeepalive(processor)
    try:
        yield
    finally:
        device.keepalive.end()
        device.keepalive = None
