"""Adapters call the package with the op's signature, and decline calls that the package would not run itself."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

from kernwright.baselines import liger
from kernwright.baselines.adapter import Adapter, Signature
from kernwright.baselines.published import PublishedBaseline
from kernwright.baselines.sglang import jit_kernel, kernels
from kernwright.core.registry import shipped_ops
from kernwright.tasks.catalog import find_task, list_tasks
from kernwright.tasks.tensor import ConcreteTensor, contiguous_strides

HOPPER = (9, 0)
TABLES = {"sglang": kernels.TABLE, "older": jit_kernel.TABLE, "liger": liger.TABLE}
ADAPTERS = [pytest.param(a, id=f"{name}-{op}") for name, table in TABLES.items() for op, a in table.adapters.items()]


def bound(adapter: Adapter, *results: Any) -> tuple[Any, list[tuple[Any, ...]]]:
    """Return the adapter, bound to functions that only record how they are called."""
    calls: list[tuple[Any, ...]] = []

    def noting(*arguments: Any, **named: Any) -> Any:
        calls.append((arguments, named))
        return results[0] if results else None

    return adapter.bind(*[noting] * len(adapter.functions)), calls


def signature(scalars: dict[str, Any] | None = None, capability: Any = HOPPER, **tensors: Any) -> Signature:
    specs = {}
    for name, (shape, dtype, *strides) in tensors.items():
        dense = contiguous_strides(tuple(shape))
        specs[name] = ConcreteTensor(shape=tuple(shape), dtype=dtype, strides=tuple(strides[0]) if strides else dense)
    return Signature(specs, scalars or {}, capability)


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_an_adapter_takes_what_its_op_takes(adapter: Adapter) -> None:
    call, _ = bound(adapter)
    mine = inspect.signature(call).parameters
    assert all(p.kind is not p.VAR_POSITIONAL for p in mine.values())
    if (op := shipped_ops().get(adapter.op)) is not None:
        assert list(mine) == [p.name for p in op.tensor_parameters] + list(op.scalar_defaults)


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_an_adapter_says_what_it_runs(adapter: Adapter) -> None:
    re.compile(adapter.kernels)
    assert adapter.file.endswith(".py") and all(":" in function for function in adapter.functions)
    assert not adapter.ran([]) and not adapter.ran(["void at::native::vectorized_elementwise_kernel<4>"])


def test_no_op_is_both_supported_and_declined() -> None:
    for table in TABLES.values():
        assert not set(table.adapters) & set(table.absent)


def test_sglang_says_of_every_op_whether_it_has_a_kernel() -> None:
    for table in (kernels.TABLE, jit_kernel.TABLE):
        assert set(table.adapters) | set(table.absent) == set(shipped_ops())


def test_an_op_that_a_package_does_not_list_is_declined() -> None:
    own, task = PublishedBaseline.find("liger@0.8.5"), find_task("rotary_embedding")
    (row, *_) = task.select("production")
    assert own.declines(task.op_of(row), row, HOPPER) == f"liger@0.8.5 has no kernel of {row.op}"


NO_LAYER_NORM = "it has RMS norms behind a residual, and no LayerNorm"


@pytest.mark.parametrize("name", list_tasks())
def test_sglang_takes_every_production_row_that_it_has_a_kernel_for(name: str) -> None:
    task = find_task(name)
    declined = {}
    for row in task.select("production"):
        if (adapter := kernels.TABLE.adapters.get(row.op)) is not None:
            declined[row.id] = adapter.declines(Signature.of(row, task.op_of(row).scalar_defaults, HOPPER))
    assert {id_: why for id_, why in declined.items() if why not in (None, NO_LAYER_NORM)} == {}
    layers = {row.id for row in task.select("production") if row.scalars.get("norm_type") == "layer"}
    assert {id_ for id_, why in declined.items() if why} == (layers if name == "add_norm" else set())


NORM = {"norm_type": "layer", "eps": 1e-6}
X = ([1, 8, 3072], "bf16")


@pytest.mark.parametrize(
    ("op", "given", "why"),
    [
        ("norm_scale_shift", signature(NORM, x=([1, 8, 3000], "bf16")), "multiples of 256"),
        ("norm_scale_shift", signature(NORM, x=([1, 8, 8448], "bf16")), "up to 8192"),
        ("norm_scale_shift", signature(NORM, x=X, weight=([3072], "bf16")), "weight and bias, or neither"),
        ("norm_scale_shift", signature(NORM | {"norm_type": "rms"}, x=X, bias=([3072], "bf16")), "ignores a bias"),
        ("norm_scale_shift", signature(NORM, capability=None, x=X), "on a GPU only"),
        ("rms_norm", signature(x=([8, 128], "fp32"), weight=([128], "fp32")), "it takes bf16, fp16"),
        ("rms_norm", signature(x=([8, 300], "bf16"), weight=([300], "bf16")), "multiples of 256"),
        ("rms_norm", signature(capability=None, x=([8, 256], "bf16"), weight=([256], "bf16")), "on a GPU only"),
        ("add_norm", signature({"norm_type": "rms"}, x=X), "returns no sum"),
        (
            "add_norm",
            signature({"norm_type": "rms"}, x=X, residual=X, second=X, row_scale=([1, 8], "fp32")),
            "a row scale or a second input",
        ),
        ("fused_add_rms_norm_", signature(x=([8, 8208], "bf16"), residual=([8, 8208], "bf16")), "up to 8192"),
        ("fused_add_rms_norm_", signature(x=([8, 64], "bf16"), residual=([8, 64], "fp32")), "share one dtype"),
        ("fused_add_rms_norm_", signature(x=([8, 64], "bf16"), residual=([8, 64], "bf16")), "needs a weight"),
        ("rotary", signature(x=([8, 4, 128], "bf16", [1024, 128, 1])), "x must be contiguous"),
        (
            "residual_gate",
            signature(residual=X, update=X, gate=([1, 4, 3072], "bf16")),
            "a gate of",
        ),
        ("residual_gate", signature(residual=X, update=X, gate=([1, 1, 3072], "fp32")), "share one dtype"),
        ("scale_shift", signature(x=X, scale=([1, 2, 1, 3072], "bf16"), shift=([1, 2, 1, 3072], "bf16")), "per token"),
        (
            "ltx2_qknorm_split_rope",
            signature(capability=(8, 0), q=X, k=X, q_cos=X, k_cos=X),
            "sm_90 and later, this is sm_80",
        ),
        (
            "ernie_norm_modulate",
            signature(x=X, weight=([3072], "bf16"), scale=([1, 1, 3072], "bf16"), shift=([1, 1, 3072], "bf16")),
            "2048 and 4096",
        ),
        (
            "causal_cat_pad",
            signature(
                {"pad_w": 0, "pad_h": 0, "pad_t": 1}, x=([1, 3, 1, 5, 5], "bf16"), cache=([1, 3, 1, 5, 5], "bf16")
            ),
            "multiple of 16 bytes",
        ),
        (
            "qknorm_rope",
            signature({"is_neox": False}, q=([4, 2, 96], "bf16"), cos_sin_cache=([4, 96], "fp32")),
            "heads of 96",
        ),
    ],
)  # fmt: skip
def test_sglang_declines_calls_that_its_layers_never_make(op: str, given: Signature, why: str) -> None:
    reason = kernels.TABLE.adapters[op].declines(given)
    assert reason and why in reason


@pytest.mark.parametrize("gate", [[1, 8, 3072], [1, 1, 3072], [1, 8, 1]])
def test_sglang_s_gates(gate: list[int]) -> None:
    given = signature(residual=X, update=X, gate=(gate, "bf16"))
    assert kernels.TABLE.adapters["residual_gate"].declines(given) is None


def test_a_residual_that_ernie_returns_first_comes_second_from_sglang() -> None:
    call, _ = bound(kernels.TABLE.adapters["ernie_residual_norm_modulate"], ("y", "residual_out"))
    assert call(*range(6), eps=1e-6) == ("residual_out", "y")


def test_padding_is_written_as_torch_writes_it() -> None:
    call, calls = bound(kernels.TABLE.adapters["causal_cat_pad"])
    call("x", "cache", pad_w=1, pad_h=2, pad_t=3)
    assert calls == [(("x", "cache", (1, 1, 2, 2, 3, 0)), {})]


def test_the_older_sglang_is_asked_for_its_own_functions() -> None:
    older, later = jit_kernel.TABLE.adapters, kernels.TABLE.adapters
    for op in set(older) & set(later):
        assert not set(older[op].functions) & set(later[op].functions)
        assert older[op].file.startswith("sglang/jit_kernel/")


TANH = {"x": X, "scale": ([1, 1, 3072], "bf16"), "shift": X, "weight": ([3072], "bf16")}
RMS = {"norm_type": "rms", "eps": 1e-5}


@pytest.mark.parametrize(
    ("changed", "scalars", "why"),
    [
        ({}, NORM, "no LayerNorm"),
        ({"bias": ([3072], "bf16")}, RMS, "takes no bias"),
        ({"weight": None}, RMS, "needs a weight"),
        ({"scale2": ([1, 1, 3072], "bf16")}, RMS, "needs a weight"),
        ({"scale": ([1, 1, 3072], "fp32")}, RMS, "scale is fp32"),
        ({"shift": ([1, 1, 3072], "bf16")}, RMS, "x's shape"),
        ({"scale": ([3072], "bf16")}, RMS, "two dimensions or more"),
        ({"x": ([2, 4, 3072], "bf16", [99999, 3072, 1]), "shift": ([2, 4, 3072], "bf16")}, RMS, "one step apart"),
        ({"x": ([1, 8, 8448], "bf16")}, RMS, "up to 8192"),
    ],
)
def test_calls_for_which_sglang_has_no_tanh_gate(changed: dict[str, Any], scalars: dict[str, Any], why: str) -> None:
    adapter = kernels.TABLE.adapters["norm_tanh_mul_add"]
    given = {name: tensor for name, tensor in (TANH | changed).items() if tensor}
    reason = adapter.declines(signature(scalars, **given))
    assert reason and why in reason
    strided = TANH | {"x": ([2, 4, 3072], "bf16", [16384, 4096, 1]), "shift": ([2, 4, 3072], "bf16")}
    assert adapter.declines(signature(RMS, **strided)) is None


def test_a_second_norm_is_a_second_call_of_sglang_s() -> None:
    calls: list[tuple[Any, ...]] = []
    bind = kernels.TABLE.adapters["norm_tanh_mul_add_norm_scale"].bind
    call = bind(lambda *given: calls.append(given) or "y", lambda *given: calls.append(given) or "y2")
    assert call("x", "scale", "shift", 2, "weight", None, "weight2", None, norm_type="rms", eps=1e-5) == ("y", "y2")
    assert calls == [("x", "scale", "shift", "weight", 1e-5), ("y", "weight2", 3, 1e-5)]
