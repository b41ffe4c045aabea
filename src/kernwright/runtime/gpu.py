"""The GPUs of this machine, as far as a choice of libraries must know them."""

from __future__ import annotations

from functools import cache

import torch

from kernwright.runtime.target import Target


@cache
def architecture(device: torch.device) -> Target:
    major, minor = torch.cuda.get_device_capability(device)
    return Target(f"sm_{major}{minor}")


@cache
def gpus_are_alike() -> bool:
    return len({architecture(torch.device("cuda", number)) for number in range(torch.cuda.device_count())}) == 1
