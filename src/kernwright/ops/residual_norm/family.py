"""Implementations of add_norm and fused_add_rms_norm_.

CUDA and Triton take the same forms. In CUDA a sum of x and a residual in one dtype has the kernels of
residual_norm_scale_shift, compiled without gate and modulation; the foreign function chooses. No kernel is exact: the
order in which torch sums a row is not part of torch's interface. On a CPU the reference runs.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, empty_like

from kernwright.core.op import Op
from kernwright.ops._shared.checks import check_norm_type, check_tokens
from kernwright.ops._shared.implementations import ROW_HEADERS, TOKEN_HEADERS, CudaOp, sources, triton
from kernwright.ops._shared.token_requirements import rows_fit
from kernwright.ops.norm_modulation.family import KERNELS
from kernwright.ops.residual_norm import definition
from kernwright.runtime.call import BadArgument, Call
from kernwright.runtime.fused_op import FusedOp
from kernwright.runtime.outputs import refuse_piled
from kernwright.runtime.public_call.public_function import Option

GENERAL_SUMS = (*sources(__file__, "kernel.cu", "policy.h"), *TOKEN_HEADERS)
SUMS_OF_TWO = (*sources(__file__, "sum_kernel.cu", "sum_policy.h"), *KERNELS, *ROW_HEADERS)
SOURCES = (*sources(__file__, "host.cc"), *GENERAL_SUMS, *SUMS_OF_TWO)
# In place an output is an input, so nothing may be read as constant memory.
MACROS = (("KERNWRIGHT_RESIDUAL", "1"), ("KERNWRIGHT_MODULATED", "0"), ("KERNWRIGHT_IN_PLACE", "1"))
summed_rows_fit = partial(rows_fit, numbers=("row_scale",))


def check(call: Call) -> None:
    x = check_tokens(call, tokens=("residual", "second"), affine=("weight", "bias"))
    if (scale := call.tensors.get("row_scale")) is not None and scale.shape != x.shape[:-1]:
        raise BadArgument(
            "row_scale", f"is {list(scale.shape)}, it must be {list(x.shape[:-1])}, a number per row of x"
        )
    if "norm_type" in call.arguments:
        check_norm_type(call)
    for name in call.op.inplace:
        refuse_piled(name, call.tensors[name])


def y_and_sum(arguments: tuple[Any, ...]) -> tuple[Tensor, Tensor]:
    """Allocate both outputs of add_norm. The sum has the residual's dtype, which is named only if needed, because this
    takes time."""
    x, residual = arguments[:2]
    if residual is None or residual.dtype is x.dtype:
        return empty_like(x), empty_like(x)
    return empty_like(x), empty_like(x, dtype=residual.dtype)


def wide_zeros(x: Any, residual: Any) -> Any:
    """Return the residual that residual_in_fp32 stands for: one row of zeros, which stays in the cache."""
    if residual is not None or not isinstance(x, Tensor):
        return residual
    return x.new_zeros(x.shape[-1:], dtype=torch.promote_types(x.dtype, torch.float32)).expand(x.shape)


# One library holds both ops, both norms and all forms.
CUDA = {op: CudaOp(op, SOURCES, MACROS, shared="residual_norm") for op in ("add_norm", "fused_add_rms_norm_")}


def _fused(op: Op, **more: Any) -> FusedOp:
    own = CUDA[op.name].implementation(op, summed_rows_fit)
    return FusedOp(op=op, implementations=(own, triton(__name__, op, summed_rows_fit)), check=check, **more)


OPS = {
    "add_norm": _fused(
        definition.add_norm, allocate=y_and_sum, option=Option("residual_in_fp32", "residual", wide_zeros)
    ),
    "fused_add_rms_norm_": _fused(definition.fused_add_rms_norm_),
}
