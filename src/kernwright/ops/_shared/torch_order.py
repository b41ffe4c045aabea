"""Torch's own order: what kernels that go through a token in it ask of a call, and where the chain runs in their place.

In what order a family's norm goes through a token, and how a device is asked whether it does, says its `exactness.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from kernwright.core.op import Op
from kernwright.runtime.call import Call
from kernwright.runtime.dispatch import reference_function
from kernwright.runtime.implementation import Requirement
from kernwright.runtime.outputs import has_memory

GROUP = 4  # channels that torch loads at once, where their address allows it


def keeps_order(backend: str, shown: Callable[[str, Call], bool]) -> Requirement:
    """A requirement: the device has shown, when `shown` asked it, that the backend's kernel sums as torch does."""
    return partial(_refusal, backend, shown)


def _refusal(backend: str, shown: Callable[[str, Call], bool], call: Call) -> str | None:
    x = call.first
    if x.shape[-1] % GROUP:
        return f"x is {x.shape[-1]} wide, no multiple of {GROUP}: torch sums such a token in an order of its own"
    if backend == "triton" and call.arguments["eps"] < torch.finfo(torch.float32).tiny:
        return "eps is no normal number in float32, and the kernel's rsqrt takes others for zero"
    if not has_memory(x):
        return "x stands for a tensor that is not here, for which the device is not asked how torch sums"
    if torch.cuda.is_current_stream_capturing():
        return "a graph is being captured, where the device cannot be asked how torch sums"
    if not shown(backend, call):
        return f"torch {torch.__version__} sums tokens of {x.shape[-1]} channels in another order on {x.device}"
    return None


def starts_off_group(x: Tensor) -> bool:
    """Whether torch, if it reads x where it is, goes through it in another order."""
    return x.data_ptr() % (GROUP * x.element_size()) != 0


def exact_function(
    op: Op, load: Callable[[], Callable[..., Any]], is_chains: Callable[[Op, Tensor], bool]
) -> Callable[..., Any]:
    """The exact kernel; where the op's first tensor is the chain's, which only its address tells, the chain."""
    own, chain = load(), reference_function(op)

    def run(*tensors: Any, out: Any = None, **scalars: Any) -> Any:
        function = chain if is_chains(op, tensors[0]) else own
        return function(*tensors, **scalars, out=out)

    return run
