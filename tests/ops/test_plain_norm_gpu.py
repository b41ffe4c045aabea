"""The norms on a GPU, in CUDA and Triton: every case by the judge's rule, and behaviour that only a GPU has."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from plain_norm_cases import BF16, CASES, FP32, NARROW_CASES, verify

import kernwright
from kernwright import ops
from kernwright.nn import LayerNorm, RMSNorm

pytestmark = pytest.mark.gpu
BACKENDS = ["cuda", "triton"]
GIB = 2**30
# Each left-out case has a neighbour with the same variant, and GPU time is scarce.
REPEATED = [f"width {width}" for width in (2, 31, 40, 257)]
CALLS = [name for name in CASES if name not in REPEATED]


def drawn(*sizes: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    return torch.randn(sizes, device="cuda", dtype=dtype)


def rms(backend: str) -> Callable[..., torch.Tensor]:
    return lambda *tensors, **scalars: ops.rms_norm(*tensors, **scalars, backend=backend)


def assert_close(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found.float(), expected.float(), atol=0.02, rtol=0.02)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_every_case_is_close(name: str, backend: str) -> None:
    case = CASES[name]
    verify(case, lambda *a, **k: getattr(ops, case.op)(*a, **k, backend=backend), "cuda")


@pytest.mark.parametrize("name", NARROW_CASES)
def test_every_case_of_narrow_rows_is_close(name: str) -> None:
    verify(NARROW_CASES[name], rms("cuda"), "cuda")


@pytest.mark.parametrize("rows", [131, 16897, 648720])
def test_every_grid_of_small_rows_covers_every_row(rows: int) -> None:
    """Eight or sixteen threads per row, single rows and pairs, and blocks that are not full at the end."""
    x, weight = drawn(rows, 128), drawn(128)
    assert_close(ops.rms_norm(x, weight, backend="cuda"), ops.rms_norm(x, weight, backend="torch"))
    assert_close(ops.layer_norm(x, weight, backend="cuda"), ops.layer_norm(x, weight, backend="torch"))


def test_a_module_on_a_gpu_runs_cuda_by_default() -> None:
    x = drawn(19, 3072)
    for name, module in (("layer_norm", LayerNorm(3072)), ("rms_norm", RMSNorm(3072))):
        own = module.to("cuda", BF16).requires_grad_(False)
        chosen = kernwright.explain(name, x, own.weight).chosen
        assert chosen is not None and chosen.backend == "cuda"
        assert_close(own(x), getattr(ops, name)(x, own.weight, backend="torch"))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_captured_call_replays_with_new_content(backend: str) -> None:
    x, weight = drawn(200, 3072), drawn(3072)
    own = rms(backend)
    own(x, weight)  # builds and loads the kernel before the capture
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = own(x, weight)
    for _ in range(3):
        x.normal_()
        graph.replay()
        assert_close(y, ops.rms_norm(x, weight, backend="torch"))


@pytest.mark.usefixtures("much_gpu_memory")
def test_rows_beyond_two_to_the_31_elements() -> None:
    rows, width = 2**31 // 128 + 1000, 128
    if torch.cuda.mem_get_info()[0] < 24 * GIB:
        pytest.skip("needs 24 GiB of GPU memory")
    x, weight = torch.empty(rows, width, device="cuda", dtype=BF16).normal_(), drawn(width)
    for backend in BACKENDS:
        y = rms(backend)(x, weight)
        for part in (slice(0, 3), slice(rows // 2, rows // 2 + 3), slice(rows - 3, rows)):
            assert_close(y[part], ops.rms_norm(x[part], weight, backend="torch"))
        del y


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["packed heads", "cut heads"])
def test_nothing_is_copied_silently(name: str, backend: str) -> None:
    own, given = getattr(ops, CASES[name].op), CASES[name].arguments("cuda")
    own(*given, backend=backend)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    y = own(*given, backend=backend)
    assert torch.cuda.max_memory_allocated() - before <= (y.numel() * y.element_size() + 511) // 512 * 512


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_nonfinite_element_affects_its_own_row_alone(backend: str) -> None:
    x = drawn(40, 96, dtype=FP32)
    x[17, 5] = float("nan")
    finite = rms(backend)(x).isfinite().all(-1)
    assert not finite[17] and finite.sum() == 39


def test_compiled_by_inductor_it_is_one_graph() -> None:
    x, weight = drawn(195, 3072), drawn(3072)
    with torch.no_grad():
        compiled = torch.compile(lambda a, b: ops.layer_norm(a, b) * 2, fullgraph=True)
        torch.testing.assert_close(compiled(x, weight), ops.layer_norm(x, weight) * 2)
