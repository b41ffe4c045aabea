"""The CUDA and Triton kernels on a GPU: each case bit by bit against the chain on that GPU, and behaviour that only a
GPU has."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from modulation_cases import BF16, CASES, CUDA_CASES, FP32, ON_A_GPU, differing, verify

import kernwright
from kernwright import ops

pytestmark = pytest.mark.gpu
BACKENDS = ["cuda", "triton"]
GIB = 2**30


def drawn(*sizes: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    return torch.randn(sizes, device="cuda", dtype=dtype)


@pytest.mark.parametrize("name", ON_A_GPU)
@pytest.mark.parametrize("backend", BACKENDS)
def test_every_case_has_the_chains_bits(name: str, backend: str) -> None:
    case = CASES[name]
    verify(case, lambda *a, **k: getattr(ops, case.op)(*a, **k, backend=backend), "cuda")


@pytest.mark.parametrize("name", [name for name in CUDA_CASES if name not in CASES])
def test_every_kernel_for_dense_tokens_has_the_chains_bits(name: str) -> None:
    case = CUDA_CASES[name]
    verify(case, lambda *a, **k: getattr(ops, case.op)(*a, **k, backend="cuda"), "cuda")


@pytest.mark.parametrize("width", [3073, 3074])
def test_large_calls_of_odd_widths_have_the_chains_bits(width: int) -> None:
    x, other, row = drawn(1, 999, width), drawn(1, 999, width), drawn(1, 1, width)
    for given in ((x, row, row), (x, row, other), (x, other, other), (x, row.float(), row.float())):
        own = ops.scale_shift(*given, backend="cuda")
        assert torch.equal(own, ops.scale_shift(*given, backend="torch"))
    assert torch.equal(ops.broadcast_add(x, row, backend="cuda"), x + row)


@pytest.mark.parametrize("backend", BACKENDS)
def test_production_sizes_have_the_chains_bits(backend: str) -> None:
    for tokens in (19, 195, 4096, 8424):
        x, other, row = drawn(1, tokens, 3072), drawn(1, tokens, 3072), drawn(1, 1, 3072)
        wide = drawn(1, tokens, 6144, dtype=FP32).chunk(2, -1)
        for given in ((x, row, row), (x, row, other), (x, row.float(), other), (x, wide[0], wide[1])):
            assert torch.equal(ops.scale_shift(*given, backend=backend), ops.scale_shift(*given, backend="torch"))
        for gate in (row, other):
            own = ops.residual_gate(x, other, gate, backend=backend)
            assert torch.equal(own, ops.residual_gate(x, other, gate, backend="torch"))
    a, b = drawn(1, 1, 3, 2048), drawn(1, 126, 3, 2048)
    assert torch.equal(ops.broadcast_add(a, b, backend=backend), a + b)


def test_cuda_runs_by_default_and_is_exact() -> None:
    x, d = drawn(1, 19, 3072), drawn(3072)
    for op, given in (("scale_shift", (x, d, d)), ("residual_gate", (x, x, d)), ("broadcast_add", (x, d))):
        chosen = kernwright.explain(op, *given, contract="exact").chosen
        assert chosen is not None and str(chosen) == "cuda (exact)"


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_captured_call_replays_with_new_content(backend: str) -> None:
    x, d = drawn(1, 200, 3072), drawn(1, 3072)
    ops.scale_shift(x, d, d, backend=backend)  # builds and loads the kernel before the capture
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = ops.scale_shift(x, d, d, backend=backend)
    for _ in range(3):
        x.normal_()
        graph.replay()
        assert torch.equal(y, ops.scale_shift(x, d, d, backend="torch"))


@pytest.mark.parametrize("backend", BACKENDS)
def test_it_runs_on_the_current_stream(backend: str) -> None:
    """The call follows a long wait on a side stream. On another stream it would read inputs before they are written."""
    x, content = torch.full((1, 64, 1024), float("nan"), device="cuda", dtype=BF16), drawn(1, 64, 1024)
    ops.residual_gate(x, x, x, backend=backend)
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(50_000_000)
        x.copy_(content)
        out = ops.residual_gate(x, x, x, backend=backend)
    torch.cuda.synchronize()
    assert torch.equal(out, ops.residual_gate(content, content, content, backend="torch"))


@pytest.mark.usefixtures("much_gpu_memory")
def test_tensors_beyond_two_to_the_31_elements() -> None:
    tokens, width = 2**31 // 3072 + 1000, 3072
    if torch.cuda.mem_get_info()[0] < 24 * GIB:
        pytest.skip("needs 24 GiB of GPU memory")
    x = torch.empty(1, tokens, width, device="cuda", dtype=BF16).normal_()
    d = drawn(1, width)
    for backend in BACKENDS:
        y = ops.residual_gate(x, x, d, backend=backend)
        for part in (slice(0, 3), slice(tokens // 2, tokens // 2 + 3), slice(tokens - 3, tokens)):
            assert torch.equal(y[:, part], ops.residual_gate(x[:, part], x[:, part], d, backend="torch"))
        del y


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["gaps", "fp32 token chunks"])
def test_nothing_is_copied_silently(name: str, backend: str) -> None:
    case = CASES[name]
    own, tensors = getattr(ops, case.op), case.tensors("cuda")
    own(*tensors, **case.scalars, backend=backend)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    result = own(*tensors, **case.scalars, backend=backend)
    assert torch.cuda.max_memory_allocated() - before <= (result.numel() * result.element_size() + 511) // 512 * 512


def test_compiled_by_inductor_it_is_one_graph() -> None:
    x, d = drawn(1, 195, 3072), drawn(1, 3072)
    with torch.no_grad():
        compiled: Any = torch.compile(lambda a, b: ops.scale_shift(a, b, b) * 2, fullgraph=True)
        assert not differing(compiled(x, d), ops.scale_shift(x, d, d) * 2)
