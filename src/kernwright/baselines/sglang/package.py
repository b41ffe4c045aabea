"""Facts of sglang 0.5.23 for its adapters: the places of its functions, and the dtypes that its kernels take."""

from __future__ import annotations

FACADE = "sglang.kernels.ops.diffusion"
FOLDER = "sglang/kernels/ops/diffusion"
KDA = "sglang/kernels/kda_kernels"
HALVES = ("bf16", "fp16")
FLOATS = ("bf16", "fp16", "fp32")
