"""The norms with a residual on a GPU: every case of the CUDA kernels by the judge's rule, and behaviour that only a GPU
has.

The cases of the Triton kernels run with those of the other ops over tokens.
"""

from __future__ import annotations

import pytest
import torch
from residual_norm_cases import BF16, CASES, FP32, GENERAL_CASES, verify
from torch import Tensor

import kernwright
from kernwright import ops
from kernwright.nn import RMSNorm

pytestmark = pytest.mark.gpu
BACKENDS = ["cuda", "triton"]
GIB = 2**30


def drawn(*sizes: int, dtype: torch.dtype = BF16) -> Tensor:
    return torch.randn(sizes, device="cuda", dtype=dtype)


def assert_close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found.float(), expected.float(), atol=0.03, rtol=0.02)


def hold_in_place(x: Tensor, residual: Tensor, weight: Tensor, backend: str) -> None:
    wanted, total = ops.add_norm(x, residual, weight, backend="torch")
    ops.fused_add_rms_norm_(x, residual, weight, backend=backend)
    assert torch.equal(residual, total)
    assert_close(x, wanted)


@pytest.mark.parametrize("name", CASES | GENERAL_CASES)
def test_every_case_is_close(name: str) -> None:
    case = (CASES | GENERAL_CASES)[name]
    verify(case, lambda *a, **k: getattr(ops, case.op)(*a, **k, backend="cuda"), "cuda")


@pytest.mark.parametrize("rows", [1, 131, 2113, 16897])
@pytest.mark.parametrize(
    ("backend", "width"), [*(("cuda", width) for width in (128, 2048, 3073, 4096, 8192)), ("triton", 4096)]
)
def test_every_grid_covers_every_row_in_place(rows: int, width: int, backend: str) -> None:
    """From fewer rows than a GPU runs at once to outputs that are stored past its cache."""
    hold_in_place(drawn(rows, width), drawn(rows, width), drawn(width), backend)


@pytest.mark.parametrize("rows", [1, 131, 2113, 16897])
@pytest.mark.parametrize("width", [128, 2560, 4096, 4544, 3073])
def test_every_grid_covers_every_row_of_other_forms(rows: int, width: int) -> None:
    x, second, before, scale = drawn(rows, width), drawn(rows, width), drawn(rows, width, dtype=FP32), drawn(rows)
    for given in ((x, before), (x, x, None, None, second), (x, None, drawn(width), None, None, scale)):
        wanted, total = ops.add_norm(*given, backend="torch")
        y, found = ops.add_norm(*given, backend="cuda")
        assert torch.equal(found, total)
        assert_close(y, wanted)


def test_cuda_runs_by_default_in_every_form() -> None:
    x, residual, weight = drawn(19, 4096), drawn(19, 4096), drawn(4096)

    def chosen(op: str, *given: Tensor | None) -> str:
        found = kernwright.explain(op, *given).chosen
        return found.backend if found else "none"

    assert chosen("fused_add_rms_norm_", x, residual, weight) == "cuda"
    assert chosen("add_norm", x, residual, weight) == "cuda"
    assert chosen("add_norm", x, residual.float(), weight) == "cuda"
    assert chosen("add_norm", x, residual, weight, None, x, drawn(19)) == "cuda"
    assert chosen("fused_add_rms_norm_", x, residual.float(), weight) == "cuda"
    module = RMSNorm(4096, eps=1e-6).to("cuda", BF16).requires_grad_(False)
    for before in (residual, residual.float(), residual):  # each form follows another form on the fast path
        y, total = module(x, before)
        assert torch.equal(total, x + before)
        assert_close(y, ops.rms_norm(total, module.weight, backend="torch"))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_captured_call_works_in_place_at_every_replay(backend: str) -> None:
    x, residual, weight = drawn(200, 4096), drawn(200, 4096), drawn(4096)
    ops.fused_add_rms_norm_(x, residual, weight, backend=backend)  # builds and loads the kernel before the capture
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        ops.fused_add_rms_norm_(x, residual, weight, backend=backend)
    for _ in range(3):
        x.normal_()
        wanted, total = ops.add_norm(x, residual, weight, backend="torch")
        graph.replay()
        assert torch.equal(residual, total)
        assert_close(x, wanted)


@pytest.mark.parametrize("backend", BACKENDS)
def test_it_runs_on_the_current_stream(backend: str) -> None:
    """The call follows a long wait on a side stream. On another stream it would read inputs before they are written."""
    content, before, weight = drawn(64, 1024), drawn(64, 1024), drawn(1024)
    ops.fused_add_rms_norm_(content.clone(), before.clone(), weight, backend=backend)
    x, residual = (torch.full_like(content, float("nan")) for _ in range(2))
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(50_000_000)
        x.copy_(content)
        residual.copy_(before)
        ops.fused_add_rms_norm_(x, residual, weight, backend=backend)
    torch.cuda.synchronize()
    assert torch.equal(residual, content + before)
    assert_close(x, ops.rms_norm(residual, weight, backend="torch"))


@pytest.mark.usefixtures("much_gpu_memory")
@pytest.mark.parametrize("backend", BACKENDS)
def test_rows_beyond_two_to_the_31_elements(backend: str) -> None:
    rows, width = 2**31 // 4096 + 1000, 4096
    if torch.cuda.mem_get_info()[0] < 24 * GIB:
        pytest.skip("needs 24 GiB of GPU memory")
    x, residual = (torch.empty(rows, width, device="cuda", dtype=BF16).normal_() for _ in range(2))
    weight, parts = drawn(width), [slice(0, 3), slice(rows // 2, rows // 2 + 3), slice(rows - 3, rows)]
    wanted = [ops.add_norm(x[part], residual[part], weight, backend="torch") for part in parts]
    ops.fused_add_rms_norm_(x, residual, weight, backend=backend)
    for part, (y, total) in zip(parts, wanted, strict=True):
        assert torch.equal(residual[part], total)
        assert_close(x[part], y)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["in place torch.bfloat16", "in place apart", "in place cut"])
def test_in_place_nothing_is_allocated(name: str, backend: str) -> None:
    given = list(CASES[name].tensors("cuda").values())
    ops.fused_add_rms_norm_(*given, backend=backend)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    ops.fused_add_rms_norm_(*given, backend=backend)
    assert torch.cuda.max_memory_allocated() == before


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_nonfinite_element_affects_its_own_row_alone(backend: str) -> None:
    x, residual = drawn(40, 96, dtype=FP32), drawn(40, 96, dtype=FP32)
    x[17, 5] = float("nan")
    ops.fused_add_rms_norm_(x, residual, backend=backend)
    finite = x.isfinite().all(-1)
    assert not finite[17] and finite.sum() == 39
    assert residual.isfinite().sum() == residual.numel() - 1


def test_an_expanded_tensor_is_refused_before_any_launch() -> None:
    x, residual = drawn(4, 64), drawn(4, 64)
    ops.fused_add_rms_norm_(x, residual)  # the next call takes the fast path
    kept = residual.clone()
    with pytest.raises(ValueError, match=r"^x: is expanded, and cannot be written"):
        ops.fused_add_rms_norm_(drawn(64).expand(4, 64), residual)
    assert torch.equal(residual, kept)


def test_compiled_by_inductor_it_is_one_graph_that_works_in_place() -> None:
    x, residual, weight = drawn(195, 4096), drawn(195, 4096), drawn(4096)

    def block(x: Tensor, residual: Tensor) -> Tensor:
        ops.fused_add_rms_norm_(x, residual, weight)
        return x * 2

    with torch.no_grad():
        own, eager = (x.clone(), residual.clone()), (x.clone(), residual.clone())
        assert_close(torch.compile(block, fullgraph=True)(*own), block(*eager))
        for found, wanted in zip(own, eager, strict=True):
            assert_close(found, wanted)
