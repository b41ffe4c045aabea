"""Adapters of the rotary embeddings of sglang 0.5.23, alone and behind the norms of queries and keys."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from kernwright.baselines.adapter import Function, Signature, Table, contiguous, dtypes, least_capability
from kernwright.baselines.sglang import package as its

TABLE = Table()


@TABLE.add(
    "rotary", f"{its.FACADE}:apply_rotary_embedding", file=f"{its.FOLDER}/rope/rotary_triton.py",
    kernels="_rotary_embedding_kernel", objections=(contiguous("x"),),
)  # fmt: skip
def rotary(apply: Function) -> Function:
    def call(x: Tensor, cos: Tensor, sin: Tensor) -> Any:
        return apply(x, cos, sin)

    return call


@TABLE.add(
    "ltx2_split_rotary", f"{its.FACADE}:apply_ltx2_split_rotary_emb", file=f"{its.FOLDER}/rope/ltx2_rotary_triton.py",
    kernels="_ltx2_split_rotary_kernel", objections=(contiguous("x"),),
)  # fmt: skip
def ltx2_split_rotary(apply: Function) -> Function:
    def call(x: Tensor, cos: Tensor, sin: Tensor) -> Any:
        return apply(x, cos, sin)

    return call


def rope_sizes(signature: Signature) -> str | None:
    head, rope = signature["q"].shape[-1], signature["cos_sin_cache"].shape[-1]
    if head not in (64, 128, 256):
        return f"heads of {head}: it takes 64, 128 and 256"
    lane = head // 32
    if not 0 < rope <= head or rope % lane or (signature.scalars["is_neox"] and (rope // lane) % 2):
        return f"a rotated part of {rope} in heads of {head}"
    return None


@TABLE.add(
    "qknorm_rope", f"{its.FACADE}:fused_inplace_qknorm_rope", file=f"{its.FOLDER}/rope/qknorm_rope_jit.py",
    kernels="fused_qknorm_rope", objections=(dtypes(*its.HALVES, of=("q", "k")), rope_sizes),
    rounding="the normed value is not rounded before it is rotated",
)  # fmt: skip
def qknorm_rope(fused: Function) -> Function:
    def call(
        q: Tensor, k: Tensor, q_weight: Tensor, k_weight: Tensor, cos_sin_cache: Tensor, positions: Tensor,
        *, eps: float, is_neox: bool,
    ) -> None:  # fmt: skip
        fused(
            q, k, q_weight, k_weight, cos_sin_cache, positions,
            is_neox=is_neox, eps=eps, head_dim=q.shape[-1], rope_dim=cos_sin_cache.shape[-1],
        )  # fmt: skip

    return call


@TABLE.add(
    "ltx2_qknorm_split_rope", f"{its.FACADE}:ltx2_qknorm_split_rope_cuda",
    file=f"{its.KDA}/ltx2_qknorm_split_rope_jit.py",
    kernels="ltx2_qknorm_split_rope_fused_kernel|ltx2_qknorm_split_rope_kernel",
    objections=(least_capability(9), dtypes("bf16", of=("q", "k", "q_cos", "k_cos")), contiguous("q", "k")),
    rounding="fused; on Hopper sglang takes it only where a request's quality allows that",
)  # fmt: skip
def ltx2_qknorm_split_rope(fused: Function) -> Function:
    def call(
        q: Tensor, k: Tensor, q_cos: Tensor, q_sin: Tensor, k_cos: Tensor, k_sin: Tensor,
        q_norm_weight: Tensor, k_norm_weight: Tensor, *, eps: float,
    ) -> Any:  # fmt: skip
        return fused(
            q, q_cos, q_sin, q_norm_weight, k, k_cos, k_sin, k_norm_weight,
            eps=eps, num_heads=q_cos.shape[1], head_dim=2 * q_cos.shape[3], allow_sm90=True,
        )  # fmt: skip

    return call
