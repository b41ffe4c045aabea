"""Requirements that implementations of any family have. Each returns why a call is not taken, or None."""

from __future__ import annotations

import importlib.util
import os

import torch

from kernwright.runtime.call import Call


def on_cuda(call: Call) -> str | None:
    """Require tensors on a CUDA device that torch sees."""
    if call.first.device.type != "cuda":
        return f"{call.op.activations[0]} is on {call.first.device}"
    if torch.version.hip:
        return "this torch is built for ROCm"
    if not torch.cuda.is_available():
        return "torch sees no CUDA device"
    index, count = call.first.device.index or 0, torch.cuda.device_count()
    return (
        None if index < count else f"torch sees {count} CUDA device(s), and no cuda:{index}"
    )  # a fake tensor may name any device


def on_cpu(call: Call) -> str | None:
    """Require tensors on the CPU."""
    return None if call.first.device.type == "cpu" else f"{call.op.activations[0]} is on {call.first.device}"


def triton_there(call: Call) -> str | None:
    """Require Triton, and a CUDA device or Triton's interpreter."""
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed"
    if call.first.device.type == "cpu" and os.environ.get("TRITON_INTERPRET") == "1":
        return None
    return on_cuda(call)
