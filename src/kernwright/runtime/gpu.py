"""The architectures of the GPUs of this machine, which decide about libraries."""

from __future__ import annotations

from functools import cache

import torch

from kernwright.runtime.target import Target


@cache
def architecture(device: torch.device) -> Target:
    """Return the target that libraries for this GPU are built for."""
    major, minor = torch.cuda.get_device_capability(device)
    return Target(f"sm_{major}{minor}")


@cache
def gpus_are_alike() -> bool:
    """Return whether all GPUs of this machine have the same architecture."""
    return len({architecture(torch.device("cuda", number)) for number in range(torch.cuda.device_count())}) == 1
