"""Implementations of LTX-2's modulated norms. Modulations broadcast by torch's rule: `[S, D]` is a row per token.

The CUDA kernels sum a token as torch does on a GPU, and so does a second Triton kernel beside a close one. Both are
exact where the device at hand shows it (`exactness.py`); elsewhere `contract="exact"` runs the chain.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, empty_like

from kernwright.core.op import Op
from kernwright.ops._shared.checks import broadcast_shape, check_tokens, joint_shape
from kernwright.ops._shared.implementations import CUDA_HEADERS, CudaOp, sources, triton, triton_function
from kernwright.ops._shared.token_requirements import MOST_AXES, tokens_fit
from kernwright.ops._shared.torch_order import exact_implementations
from kernwright.ops.ltx2_modulate import definition, exactness
from kernwright.runtime.call import BadArgument, Call
from kernwright.runtime.fused_op import FusedOp

# The form that kernels are compiled for, and the modulations of each result.
FORMS = {
    "rms_modulate": ("kOne", (("scale", "shift"),)),
    "dual_modulate": ("kTwo", (("scale0", "shift0"), ("scale1", "shift1"))),
    "rms_modulate_from_table": ("kOneOfTable", ()),
    "dual_modulate_from_table": ("kTwoOfTable", ()),
}
MODULATIONS = ("scale", "shift", "scale0", "shift0", "scale1", "shift1")
SOURCES = (*sources(__file__, "host.cc", "kernel.cu", "policy.h"), *CUDA_HEADERS)


def check(call: Call) -> None:
    x = check_tokens(call)
    for pair in FORMS[call.op.name][1]:
        joint_shape(call, ("x", *pair))
    if "scale_shift_table" in call.tensors:
        _check_table(call, x, 2 * len(call.op.outputs))


def _check_table(call: Call, x: Tensor, rows: int) -> None:
    """Check a table with a scale and a shift for each result, and the embedding that is added to it."""
    temb, table, width = call.tensors["temb_scale_shift"], call.tensors["scale_shift_table"], x.shape[-1]
    if table.shape != (rows, width):
        raise BadArgument("scale_shift_table", f"is {list(table.shape)}, it must be [{rows}, {width}]")
    if temb.ndim != 3 or temb.shape[-1] != rows * width:
        raise BadArgument("temb_scale_shift", f"is {list(temb.shape)}, it must be [B, 1, {rows * width}]")
    leading = x.shape[:-1][-2:]
    if any(own not in (1, whole) and whole != 1 for own, whole in zip(temb.shape[1::-1], leading[::-1], strict=False)):
        raise BadArgument(
            "temb_scale_shift", f"is {list(temb.shape)}, whose rows do not broadcast with x, {list(x.shape)}"
        )


def modulated_tokens_fit(call: Call) -> str | None:
    """Require what every fused kernel asks of the tensors."""
    x, temb = call.first, call.tensors.get("temb_scale_shift")
    given = [[call.tensors[name].shape for name in pair] for pair in FORMS[call.op.name][1]]
    if temb is not None:
        given = [[torch.Size((*temb.shape[:2], x.shape[-1]))]] * len(call.op.outputs)
    for name, shapes in zip(call.op.outputs, given, strict=True):
        if (shape := broadcast_shape(x.shape, *shapes)) != x.shape:
            return f"{name} is {list(shape)}, x is {list(x.shape)}"
    return tokens_fit(call, modulations=MODULATIONS, most_axes=MOST_AXES)


def wide_like_x(count: int, arguments: tuple[Any, ...]) -> tuple[Tensor, ...]:
    x = arguments[0]
    y = empty_like(x, dtype=torch.float32)
    return (y,) if count == 1 else (y, empty_like(x, dtype=torch.float32))


CUDA = {op: CudaOp(op, SOURCES, (("KERNWRIGHT_FORM", form),)) for op, (form, _) in FORMS.items()}


def _fused(op: Op) -> FusedOp:
    cuda = CUDA[op.name].implementation(op, modulated_tokens_fit)
    close = triton(__name__, op, modulated_tokens_fit)
    exact_cuda, exact_triton = exact_implementations(
        replace(cuda, launch=None),
        replace(close, load=triton_function(__name__, op, exact=True)),
        op,
        exactness.is_chains,
        exactness.sums_as_torch,
    )
    allocate = partial(wide_like_x, len(op.outputs))
    return FusedOp(op=op, implementations=(cuda, exact_cuda, close, exact_triton), check=check, allocate=allocate)


OPS = {name: _fused(getattr(definition, name)) for name in FORMS}
