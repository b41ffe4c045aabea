"""Implementations of the family's ops. The ops that select a modulation have no kernel for a CPU.

The kernels that run by default are close. For LayerNorm without weight and bias the first two ops also have exact ones,
in CUDA and in Triton, which sum a token in torch's order. That order differs between torch's CPU and CUDA kernels and
is not part of its interface, so a device must show equal bits (`exactness.py`). For `contract="exact"`, the eager chain
runs for every other norm, for the ops that select, and on a device that does not show equal bits.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, empty_like

from kernwright.core.op import Op
from kernwright.ops._shared.checks import broadcast_shape, check_bias, check_norm_type, check_tokens
from kernwright.ops._shared.implementations import (
    CPU_HEADERS,
    CUDA_HEADERS,
    TOKEN_HEADERS,
    CudaOp,
    sources,
    triton,
    triton_function,
)
from kernwright.ops._shared.modulation_layout import aligned
from kernwright.ops._shared.token_requirements import MOST_AXES, tokens_fit
from kernwright.ops._shared.torch_order import exact_implementations
from kernwright.ops.norm_modulation import definition, exactness
from kernwright.runtime.call import BadArgument, Call
from kernwright.runtime.fused_op import FusedOp
from kernwright.runtime.implementation import Implementation, Launch, Requirement
from kernwright.runtime.library import Library
from kernwright.runtime.outputs import from_launch
from kernwright.runtime.requirements import on_cpu
from kernwright.runtime.target import Target

PLAIN = (definition.norm_scale_shift, definition.residual_norm_scale_shift)
SELECT = (definition.norm_scale_shift_select, definition.residual_norm_scale_shift_select)
SETS = ("scale0", "shift0", "gate0", "scale1", "shift1", "gate1")
INDEX_DTYPES = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
# The kernels, which plain_norm and residual_norm compile too, each with a host.cc of its own.
KERNELS = sources(
    __file__, "kernel.cu", "policy.h", "problem.h", "brief.cuh", "held.cuh", "lean.cuh", "odd.cuh", "pivot.cuh",
    "shared_rows.cuh", "shifted.cuh", "small.cuh", "statistics.cuh", "streamed.cuh", "work.cuh",
)  # fmt: skip
EXACT_FILES = ("exact_host.cc", "exact_kernel.cu", "exact_policy.h", "exact_statistics.cuh", "problem.h", "arguments.h")
CPU, CPU_LIBRARY = (
    Target("cpu"),
    Library("norm_modulation", (*sources(__file__, "cpu.cc", "problem.h", "arguments.h"), *CPU_HEADERS)),
)


def _cuda(ops: tuple[Op, Op], files: tuple[Any, ...], suffix: str = "") -> dict[str, CudaOp]:
    return {
        op.name: CudaOp(op.name + suffix, files, (("KERNWRIGHT_RESIDUAL", str(number)),))
        for number, op in enumerate(ops)
    }


CUDA = _cuda(PLAIN, (*sources(__file__, "host.cc", "arguments.h"), *KERNELS, *CUDA_HEADERS))
EXACT = _cuda(PLAIN, (*sources(__file__, *EXACT_FILES), *CUDA_HEADERS), "_exact")
CUDA |= _cuda(SELECT, (*sources(__file__, "select_host.cc", "select_kernel.cu", "select_policy.h"), *TOKEN_HEADERS))


def check(call: Call) -> None:
    check_tokens(call, ("scale", "shift", "gate"), ("weight", "bias"))
    check_bias(call, is_rms=check_norm_type(call))


def check_select(call: Call) -> None:
    """Check six rows `[B, D]` and an index `[B, S]`, each with any axis 1."""
    x = check_tokens(call, ("residual_gate",), ("weight", "bias"), integers=("index",))
    if x.ndim != 3:
        raise BadArgument("x", f"is {list(x.shape)}, it must be [B, S, D]")
    batches, tokens, width = x.shape
    for name in SETS:
        if not _broadcasts(own := call.tensors[name], (batches, width)) or own.ndim != 2:
            raise BadArgument(
                name, f"is {list(own.shape)}, it must be [{batches}, {width}], a row per batch entry of x"
            )
    index = call.tensors["index"]
    if index.is_floating_point() or index.is_complex():
        raise BadArgument("index", f"is {index.dtype}, it must be integers or booleans")
    if not _broadcasts(index, (batches, tokens)):
        raise BadArgument("index", f"is {list(index.shape)}, it must be [{batches}, {tokens}], a number per token of x")
    check_bias(call, is_rms=False)


def _broadcasts(own: Tensor, sizes: tuple[int, ...]) -> bool:
    return own.ndim <= len(sizes) and all(
        size in (1, whole) for size, whole in zip(reversed(own.shape), reversed(sizes), strict=False)
    )


modulated_tokens_fit = partial(tokens_fit, modulations=("scale", "shift", "gate"), alike=(), most_axes=MOST_AXES)


def residual_is_alike(call: Call) -> str | None:
    """Require one dtype of tokens, which native kernels are compiled for. Triton compiles for those at hand."""
    residual, x = call.tensors.get("residual"), call.first
    return None if residual is None or residual.dtype == x.dtype else f"residual is {residual.dtype}, x is {x.dtype}"


def chosen_tokens_fit(call: Call) -> str | None:
    index, x, gates = call.tensors["index"], call.first, (call.tensors["gate0"], call.tensors["gate1"])
    if index.dtype not in INDEX_DTYPES:
        return f"index is {index.dtype}"
    shape = broadcast_shape((*aligned(index, 2).shape, 1), *(gate[:, None, :].shape for gate in gates))
    if shape[-1] != x.shape[-1]:
        return f"the chosen gate is {list(shape)}, x is {list(x.shape)}"
    if x.numel() == 0 and shape.numel() != 0:
        return f"the chosen gate is {list(shape)}, and x, {list(x.shape)}, has no tokens"
    return tokens_fit(call, modulations=(*SETS, "residual_gate"), alike=(), indices=("index",))


def is_plain_layer_norm(call: Call) -> str | None:
    """Require the norm whose order of sums is known."""
    if call.arguments["norm_type"] != "layer":
        return "is for LayerNorm, and the norm is another"
    return "is for a norm without weight and bias" if "weight" in call.tensors else None


def with_chosen_gate(sets: int, arguments: tuple[Any, ...]) -> tuple[Tensor, ...]:
    """Allocate outputs like x, and the chosen gate in the dtype of both gates. `sets` is the place of the first set.

    The gate has the shape of x where the index has a number for each token, else that of index and gates together.
    """
    x, gate0, gate1, index = (arguments[place] for place in (0, sets + 2, sets + 5, sets + 6))
    y, total = empty_like(x), () if sets == 1 else (empty_like(x),)
    if index.numel() * x.shape[-1] != x.numel():
        rows = [(own.shape[0], 1, own.shape[-1]) for own in (gate0, gate1)]
        shape = torch.broadcast_shapes((*index.shape, 1), *rows)  # type: ignore[no-untyped-call]
        return y, *total, x.new_empty(shape, dtype=torch.promote_types(gate0.dtype, gate1.dtype))
    if gate0.dtype is gate1.dtype is x.dtype:
        return y, *total, empty_like(x)
    return y, *total, empty_like(x, dtype=torch.promote_types(gate0.dtype, gate1.dtype))


@cache
def cpu_launch(op: str) -> Launch:
    function = getattr(CPU_LIBRARY.load(CPU), op)
    threads = torch.get_num_threads  # asked at each call: torch's setting holds for these kernels too

    def launch(*arguments: Any) -> bool:
        return function(*arguments, threads())  # type: ignore[no-any-return]

    return launch


def _cpu(op: Op, *requires: Requirement) -> Implementation:
    return Implementation(
        backend="cpu",
        contract="close",
        load=partial(from_launch, op, lambda *_: cpu_launch(op.name)),
        requires=(on_cpu, *requires, lambda call: CPU_LIBRARY.unavailable(CPU)),
        launch=lambda *_: cpu_launch(op.name),
        libraries=lambda target: [] if target.is_cuda else [CPU_LIBRARY],
    )


def _plain(op: Op) -> FusedOp:
    exact_requires = (modulated_tokens_fit, is_plain_layer_norm)
    exact = EXACT[op.name].implementation(op, *exact_requires, residual_is_alike)
    exact_triton = triton(__name__, op, *exact_requires)
    implementations = (
        CUDA[op.name].implementation(op, modulated_tokens_fit, residual_is_alike),
        _cpu(op, modulated_tokens_fit, residual_is_alike),
        triton(__name__, op, modulated_tokens_fit),
        *exact_implementations(
            replace(exact, launch=partial(exactness.shown_shortcut, op.name, EXACT[op.name])),
            replace(exact_triton, load=triton_function(__name__, op, kernels="exact_triton")),
            op,
            exactness.is_chains,
            exactness.norms_as_torch,
        ),
    )
    return FusedOp(op=op, implementations=implementations, check=check)


def _select(op: Op, sets: int) -> FusedOp:
    cuda = CUDA[op.name].implementation(op, chosen_tokens_fit, residual_is_alike)
    implementations = (cuda, triton(__name__, op, chosen_tokens_fit))
    allocate = partial(with_chosen_gate, sets)
    return FusedOp(op=op, implementations=implementations, check=check_select, allocate=allocate)


OPS = {op.name: _plain(op) for op in PLAIN} | {
    op.name: _select(op, sets) for op, sets in zip(SELECT, (1, 3), strict=True)
}
