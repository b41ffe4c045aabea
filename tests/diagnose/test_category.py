"""Categories of kernels that real programs launch: eager, compiled, serving engines."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernwright.diagnose.category import CATEGORIES, category_of, category_rules
from kernwright.diagnose.trace.host_stack import HostThread, Interned
from kernwright.diagnose.trace.trace import GpuEvent, Launch

# Kernel name, operator, Python frames around it, category.
EVENTS = [
    ("nvjet_sm90_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN", "aten::addmm", (), "GEMM"),
    ("void cutlass::device_kernel<at::cuda::detail::enable_3x_kernel_for_sm9x<...>>", "aten::_scaled_mm", (), "GEMM"),
    ("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_32x6_tn", "aten::mm", (), "GEMM"),
    ("fused_moe_kernel", None, (), "GEMM"),
    (
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma",
        "aten::_cudnn_attention_forward",
        (),
        "attention",
    ),
    ("void flash::flash_fwd_splitkv_kernel<...>", None, (), "attention"),
    ("BatchDecodeWithPagedKVCacheKernel", None, (), "attention"),
    ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", None, (), "communication"),
    ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>", None, (), "communication"),
    ("void vllm::rms_norm_kernel<c10::BFloat16>", None, (), "norm"),
    ("void vllm::rotary_embedding_kernel<c10::BFloat16, true>", None, (), "rope"),
    ("void vllm::act_and_mul_kernel<c10::BFloat16, silu_kernel>", None, (), "activation"),
    ("void vllm::reshape_and_cache_flash_kernel<...>", None, (), "layout"),
    ("Memcpy DtoH (Device -> Pinned)", "aten::copy_", (), "memory"),
    (
        "void at::native::elementwise_kernel<128, 2, mul>",
        "aten::mul",
        ("m/embeddings.py(95): apply_rotary_emb",),
        "rope",
    ),
    ("void at::native::elementwise_kernel<128, 4, mul>", "aten::mul", ("nn.Module: AdaLayerNormZero_0",), "modulation"),
    (
        "void at::native::reduce_kernel<512, 1, MeanOps>",
        "aten::mean",
        ("nn.Module: RMSNorm_3", "m/n.py(5): forward"),
        "norm",
    ),
    ("void at::native::(anonymous namespace)::CatArrayBatchedCopy_vectorized<...>", "aten::cat", (), "layout"),
    ("void at::native::vectorized_elementwise_kernel<8, GeluCUDAKernelImpl>", "aten::gelu", (), "activation"),
    ("triton_poi_fused_cat_gelu_permute_view_3", None, (), "activation"),
    ("triton_red_fused_add_cat_mul_native_layer_norm_split_unsqueeze_1", None, (), "modulation"),
    ("triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_2", None, (), "norm"),
    ("triton_tem_fused_addmm_7", None, (), "GEMM"),
    ("a kernel of a kind that nobody knows", None, (), "other"),
]


@pytest.mark.parametrize(("kernel", "op", "frames", "category"), EVENTS, ids=[event[0][:40] for event in EVENTS])
def test_an_event_has_its_category(kernel: str, op: str | None, frames: tuple[str, ...], category: str) -> None:
    names = Interned()
    thread = HostThread(("1", "1"), names)
    for depth, frame in enumerate(frames):
        thread.add_frame(names.number(frame), float(depth), 100.0 - 2 * depth)
    if op:
        thread.add_op(names.number(op), 10.0, 50.0, ())
    (stack,) = thread.stacks_at([20.0])
    launch = Launch("cudaLaunchKernel", 20.0, 5.0, thread.key, stack)
    event = GpuEvent(kind="kernel", name=kernel, start_us=30.0, duration_us=1.0, device=0, stream=7, launch=launch)
    assert category_of(event) == category


def test_the_names_of_kernels_tell_their_category() -> None:
    """Names of engines, libraries and GPUs that the labelled traces do not have, without operators or Python code."""
    found = []
    for line in (Path(__file__).parent / "kernel_names.tsv").read_text(encoding="utf-8").splitlines():
        category, name = line.split("\t")
        event = GpuEvent(kind="kernel", name=name, start_us=0.0, duration_us=1.0, device=0, stream=7)
        found.append((name, category, category_of(event)))
    assert len(found) > 150
    assert [(name, right, given) for name, right, given in found if right != given] == []


def test_every_rule_names_a_known_category() -> None:
    assert {rule.category for rule in category_rules()} <= set(CATEGORIES)
