"""Requirements of kernels that sum a token in torch's order, and the calls for which the chain runs instead.

A family's `exactness.py` describes the order of its norm and checks whether a device keeps it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from kernwright.core.op import Op
from kernwright.runtime.call import Call
from kernwright.runtime.choice.reference import reference_function
from kernwright.runtime.implementation import Implementation, Requirement
from kernwright.runtime.outputs import has_memory
from kernwright.runtime.requirements import on_cuda

GROUP = 4  # channels that torch loads at once, where their address allows it


def keeps_order(backend: str, shown: Callable[[str, Call], bool]) -> Requirement:
    """Require that the check `shown` has found that the backend's kernel sums as torch does on this device."""
    return partial(_refusal, backend, shown)


def _refusal(backend: str, shown: Callable[[str, Call], bool], call: Call) -> str | None:
    x = call.first
    if x.shape[-1] % GROUP:
        return f"x is {x.shape[-1]} wide, not a multiple of {GROUP}: torch sums such a token in another order"
    if backend == "triton" and call.arguments["eps"] < torch.finfo(torch.float32).tiny:
        return "eps is not a normal number in float32, and the kernel's rsqrt treats it as zero"
    if not has_memory(x):
        return "x stands for a tensor that is not here, for which the device is not asked how torch sums"
    if torch.cuda.is_current_stream_capturing():
        return "a graph is being captured, where the device cannot be asked how torch sums"
    if not shown(backend, call):
        return f"torch {torch.__version__} sums tokens of {x.shape[-1]} channels in another order on {x.device}"
    return None


def starts_off_group(x: Tensor) -> bool:
    """Return whether torch would read x in place and go through it in another order."""
    return x.data_ptr() % (GROUP * x.element_size()) != 0


def exact_function(
    op: Op, load: Callable[[], Callable[..., Any]], is_chains: Callable[[Op, Tensor], bool]
) -> Callable[..., Any]:
    """Return the exact kernel's function. It runs the chain if `is_chains`, which depends on the address alone."""
    own, chain = load(), reference_function(op)

    def run(*tensors: Any, out: Any = None, **scalars: Any) -> Any:
        function = chain if is_chains(op, tensors[0]) else own
        return function(*tensors, **scalars, out=out)

    return run


def exact_implementations(
    cuda: Implementation,
    triton: Implementation,
    op: Op,
    is_chains: Callable[[Op, Tensor], bool],
    order: Callable[[str], Requirement],
) -> tuple[Implementation, Implementation]:
    """Return two implementations as exact ones. The device is checked last, after the requirements that look at the
    call alone."""
    exact_cuda, exact_triton = (
        replace(
            own,
            contract="exact",
            load=partial(exact_function, op, own.load, is_chains),
            requires=(on_cuda, *(each for each in own.requires if each is not on_cuda), order(own.backend)),
        )
        for own in (cuda, triton)
    )
    return exact_cuda, exact_triton
