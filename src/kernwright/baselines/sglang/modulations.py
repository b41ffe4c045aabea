"""Adapters of the modulations and gates of sglang 0.5.23, with and without a choice between two sets."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from kernwright.baselines.adapter import Function, Signature, Table, contiguous, dimensions, dtypes, same_dtype
from kernwright.baselines.sglang import norms
from kernwright.baselines.sglang import package as its

TABLE = Table()


def frame_modulation(signature: Signature) -> str | None:
    """Decline a shift per frame, which the function takes only on other devices."""
    if len(signature["shift"].shape) == 4:
        return "a shift per frame: on NVIDIA it takes one per token"
    return None


@TABLE.add(
    "scale_shift", f"{its.FACADE}:fuse_scale_shift_kernel", file=f"{its.FOLDER}/modulate/scale_shift_triton.py",
    kernels="fuse_scale_shift_kernel_blc_opt|_fused_scale_shift_4d_kernel",
    objections=(dimensions(3, "x"), contiguous("x"), frame_modulation),
)  # fmt: skip
def scale_shift(fused: Function) -> Function:
    def call(x: Tensor, scale: Tensor, shift: Tensor, *, scale_constant: float) -> Any:
        return fused(x, scale, shift, scale_constant=scale_constant)

    return call


SELECT = (
    dimensions(3, "x"), contiguous("x", "residual", "residual_gate"),
    dimensions(2, "scale0", "shift0", "gate0", "scale1", "shift1", "gate1", "index"), norms.row_fits,
)  # fmt: skip


@TABLE.add(
    "norm_scale_shift_select", f"{its.FACADE}:fuse_layernorm_scale_shift_gate_select01_kernel",
    file=f"{its.FOLDER}/modulate/scale_shift_triton.py", kernels="_fused_layernorm_scale_shift_gate_select01_kernel",
    objections=SELECT,
)  # fmt: skip
def norm_scale_shift_select(fused: Function) -> Function:
    def call(
        x: Tensor, scale0: Tensor, shift0: Tensor, gate0: Tensor, scale1: Tensor, shift1: Tensor, gate1: Tensor,
        index: Tensor, weight: Tensor | None, bias: Tensor | None, *, eps: float,
    ) -> Any:  # fmt: skip
        return fused(
            x, weight=weight, bias=bias, scale0=scale0.contiguous(), shift0=shift0.contiguous(),
            gate0=gate0.contiguous(), scale1=scale1.contiguous(), shift1=shift1.contiguous(),
            gate1=gate1.contiguous(), index=index.contiguous(), eps=eps,
        )  # fmt: skip

    return call


@TABLE.add(
    "residual_norm_scale_shift_select", f"{its.FACADE}:fuse_residual_layernorm_scale_shift_gate_select01_kernel",
    file=f"{its.FOLDER}/modulate/scale_shift_triton.py",
    kernels="_fused_residual_layernorm_scale_shift_gate_select01_kernel", objections=SELECT,
    rounding="the statistics are those of the sum before it is rounded",
)  # fmt: skip
def residual_norm_scale_shift_select(fused: Function) -> Function:
    def call(
        x: Tensor, residual: Tensor, residual_gate: Tensor, scale0: Tensor, shift0: Tensor, gate0: Tensor,
        scale1: Tensor, shift1: Tensor, gate1: Tensor, index: Tensor, weight: Tensor | None, bias: Tensor | None,
        *, eps: float,
    ) -> Any:  # fmt: skip
        return fused(
            x, residual=residual, residual_gate=residual_gate, weight=weight, bias=bias, scale0=scale0.contiguous(),
            shift0=shift0.contiguous(), gate0=gate0.contiguous(), scale1=scale1.contiguous(),
            shift1=shift1.contiguous(), gate1=gate1.contiguous(), index=index.contiguous(), eps=eps,
        )  # fmt: skip

    return call


def gate_shape(signature: Signature) -> str | None:
    """Decline gates of other shapes, for which the function runs the eager chain."""
    residual, gate = signature["residual"].shape, signature["gate"].shape
    rows = (*[1] * (len(residual) - 1), residual[-1])
    per_batch = (residual[0], 1, residual[-1])
    if gate in (residual, rows, per_batch, (*residual[:-1], 1)):
        return None
    return f"a gate of {list(gate)} for a residual of {list(residual)}"


@TABLE.add(
    "residual_gate", f"{its.FACADE}:residual_gate_add", file=f"{its.KDA}/residual_gate_add_jit.py",
    kernels="residual_gate_add_|_rga_transposed",
    objections=(
        dtypes(*its.HALVES, of=("residual",)), same_dtype("residual", "update", "gate"),
        contiguous("residual", "update"), gate_shape,
    ),
)  # fmt: skip
def residual_gate(fused: Function) -> Function:
    def call(residual: Tensor, update: Tensor, gate: Tensor) -> Any:
        return fused(residual, update, gate)

    return call
