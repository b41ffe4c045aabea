"""The CUDA and Triton kernels on a GPU: every case by the judge's rule, and behaviour that only a GPU has: streams and
graphs."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import norm_exact_cases
import pytest
import torch
from norm_modulation_cases import BF16, CASES, CUDA_CASES, FP32, verify

import kernwright
from kernwright import ops
from kernwright.tasks.workload import Workload

pytestmark = pytest.mark.gpu
BACKENDS = ["cuda", "triton"]
GIB = 2**30


def reference(*tensors: torch.Tensor, **scalars: Any) -> torch.Tensor:
    return ops.norm_scale_shift(*tensors, **scalars, backend="torch")


def call_of(backend: str) -> Callable[..., torch.Tensor]:
    return lambda *tensors, **scalars: ops.norm_scale_shift(*tensors, **scalars, backend=backend)


def drawn(*sizes: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    return torch.randn(sizes, device="cuda", dtype=dtype)


@pytest.mark.parametrize(
    ("backend", "name"), [*(("triton", name) for name in CASES), *(("cuda", name) for name in CUDA_CASES)]
)
def test_every_case_is_close(backend: str, name: str) -> None:
    case = CUDA_CASES[name]
    verify(case, lambda *a, **k: getattr(ops, case.op)(*a, **k, backend=backend), "cuda")


# Triton takes 2 to 8 s to compile each case, so compiling all of them would take minutes.
EXACT_BY_TRITON = [*norm_exact_cases.GPU_CASES][::5]


@pytest.mark.parametrize(
    ("backend", "name"),
    [*(("triton", name) for name in EXACT_BY_TRITON), *(("cuda", name) for name in norm_exact_cases.GPU_CASES)],
)
def test_exact_cases_have_the_chains_bits(backend: str, name: str) -> None:
    case = norm_exact_cases.GPU_CASES[name]
    norm_exact_cases.verify(case, lambda *a, **k: getattr(ops, case.op)(*a, **k, backend=backend), "cuda")


@pytest.mark.parametrize("row", norm_exact_cases.rows_of("production"), ids=lambda row: row.id)
def test_production_rows_have_the_chains_bits(row: Workload) -> None:
    for distribution in ("normal", "mixed", "offset"):
        norm_exact_cases.hold_row(row, distribution, functools.partial(getattr(ops, row.op), backend="cuda"))


@pytest.mark.parametrize("distribution", ["normal", "tiny", "zero_rows", "extremes"])
def test_rows_of_the_grid_have_the_chains_bits(distribution: str) -> None:
    for row in norm_exact_cases.rows_of("grid"):
        norm_exact_cases.hold_row(row, distribution, functools.partial(getattr(ops, row.op), backend="cuda"))


def test_an_exact_norm_runs_the_kernel_if_torch_norms_in_its_order() -> None:
    """Where torch norms in another order, the chain itself runs: at an address that is no multiple of four elements, or
    a width that is none."""
    x, row = drawn(2, 33, 1000), drawn(2, 1, 1000)
    with kernwright.preferring("triton"):
        assert str(kernwright.explain("norm_scale_shift", x, row, row, contract="exact").chosen) == "triton (exact)"
    whole = drawn(33 * 1000 + 1)
    off = whole[1:].view(1, 33, 1000)
    for tokens in (x, whole[:-1].view(1, 33, 1000), off, off[..., :996], drawn(1, 33, 1001)):
        rows = drawn(1, 1, tokens.shape[-1])
        for _ in range(2):  # the slow path, then the fast path
            assert torch.equal(
                ops.norm_scale_shift(tokens, rows, rows, contract="exact"), reference(tokens, rows, rows)
            )


def test_an_exact_call_is_not_reused_for_other_calls() -> None:
    x, d = drawn(1, 19, 3072), drawn(3072)
    close = ops.norm_scale_shift(x, d, d, backend="cuda", contract="close")
    assert not torch.equal(ops.norm_scale_shift(x, d, d, contract="exact"), close)
    assert torch.equal(ops.norm_scale_shift(x, d, d), close)


@pytest.mark.parametrize("tokens", [1, 131, 132, 1056, 2112, 2113, 8424])
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("width", [3072, 3073])
def test_every_grid_covers_every_token(tokens: int, residual: bool, width: int) -> None:
    """From fewer tokens than a GPU runs at once to outputs that are stored past its cache."""
    x, d = drawn(1, tokens, width), drawn(1, width)
    with torch.no_grad():
        if residual:
            y, r = ops.residual_norm_scale_shift(x, x, d, d, d, backend="cuda")
            torch.testing.assert_close(r.float(), x.float() * (1 + d.float()), atol=0.05, rtol=0.02)
            torch.testing.assert_close(y.float(), reference(r, d, d).float(), atol=0.05, rtol=0.03)
        else:
            y = ops.norm_scale_shift(x, d, d, backend="cuda")
            torch.testing.assert_close(y.float(), reference(x, d, d).float(), atol=0.05, rtol=0.03)


def test_cuda_runs_by_default() -> None:
    x, d = drawn(1, 19, 3072), drawn(3072)
    chosen = kernwright.explain("norm_scale_shift", x, d, d).chosen
    assert chosen is not None and chosen.backend == "cuda"


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_captured_call_replays_with_new_content(backend: str) -> None:
    x, d = drawn(1, 200, 3072), drawn(1, 3072)
    own = call_of(backend)
    own(x, d, d)  # builds and loads the kernel before the capture
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = own(x, d, d)
    for _ in range(3):
        x.normal_()
        graph.replay()
        torch.testing.assert_close(y.float(), reference(x, d, d).float(), atol=0.05, rtol=0.03)


@pytest.mark.parametrize("backend", BACKENDS)
def test_it_runs_on_the_current_stream(backend: str) -> None:
    """The call follows a long wait on a side stream. On another stream it would read inputs before they are written."""
    x, d = drawn(1, 64, 1024), drawn(1024)
    own = call_of(backend)
    own(x, d, d)
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in range(2)]
    inputs = [torch.full_like(x, float("nan")) for _ in streams]
    contents = [drawn(1, 64, 1024) for _ in streams]
    outputs = []
    torch.cuda.synchronize()
    for stream, mine, content in zip(streams, inputs, contents, strict=True):
        with torch.cuda.stream(stream):
            torch.cuda._sleep(50_000_000)
            mine.copy_(content)
            outputs.append(own(mine, d, d))
    torch.cuda.synchronize()
    for y, content in zip(outputs, contents, strict=True):
        torch.testing.assert_close(y.float(), reference(content, d, d).float(), atol=0.05, rtol=0.03)


def test_it_runs_on_its_tensors_device() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("there is one GPU")
    x, d = drawn(1, 8, 256).to("cuda:1"), drawn(256).to("cuda:1")
    y = ops.norm_scale_shift(x, d, d, backend="cuda")
    assert y.device == x.device and torch.cuda.current_device() == 0
    torch.testing.assert_close(y.float(), reference(x, d, d).float(), atol=0.05, rtol=0.03)
    with pytest.raises(ValueError, match="scale: is on"):
        ops.norm_scale_shift(x, d.to("cuda:0"), d, backend="cuda")


@pytest.mark.usefixtures("much_gpu_memory")
@pytest.mark.parametrize("width", [3072, 3073])
def test_tensors_beyond_two_to_the_31_elements(width: int) -> None:
    tokens = 2**31 // width + 1000
    if torch.cuda.mem_get_info()[0] < 24 * GIB:
        pytest.skip("needs 24 GiB of GPU memory")
    x = torch.empty(1, tokens, width, device="cuda", dtype=BF16).normal_()
    d = drawn(1, width)
    for backend in BACKENDS:
        y = call_of(backend)(x, d, d)
        for part in (slice(0, 3), slice(tokens // 2, tokens // 2 + 3), slice(tokens - 3, tokens)):
            expected = reference(x[:, part], d, d)
            torch.testing.assert_close(y[:, part].float(), expected.float(), atol=0.05, rtol=0.03)
        del y
    if width % 4 == 0:
        y = ops.norm_scale_shift(x, d, d, contract="exact")
        for part in (slice(0, 3), slice(tokens - 3, tokens)):
            assert torch.equal(y[:, part], reference(x[:, part], d, d))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["gaps", "chunk modulation", "residual gaps odd", "width 3073"])
def test_nothing_is_copied_silently(name: str, backend: str) -> None:
    case = CASES[name]
    own = getattr(ops, case.op)
    names = ("x", "residual", "scale", "shift", "gate") if case.residual else ("x", "scale", "shift")
    tensors = case.tensors("cuda")
    given = [tensors[each] for each in names]
    own(*given, backend=backend)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    results = own(*given, backend=backend)
    results = results if isinstance(results, tuple) else (results,)
    outputs = sum((result.numel() * result.element_size() + 511) // 512 * 512 for result in results)
    assert torch.cuda.max_memory_allocated() - before <= outputs


def test_many_threads_at_once() -> None:
    x, d = drawn(1, 100, 3072), drawn(3072)
    expected = ops.norm_scale_shift(x, d, d, backend="cuda")
    wrong: list[int] = []

    def run(number: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(50):
                if not torch.equal(ops.norm_scale_shift(x, d, d, backend="cuda"), expected):
                    wrong.append(number)

    torch.cuda.synchronize()
    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_nonfinite_element_affects_its_own_token_alone(backend: str) -> None:
    x = drawn(1, 40, 3072, dtype=FP32)
    x[0, 17, 5] = float("nan")
    one = torch.ones(3072, device="cuda")
    finite = call_of(backend)(x, one, one).isfinite().all(-1)[0]
    assert not finite[17] and finite.sum() == 39


def test_a_nonfinite_element_of_a_narrow_token_affects_it_alone() -> None:
    """Whole vectors, and tokens that share vectors with their neighbours."""
    for width in (3072, 3073):
        x, d = drawn(1, 40, width), drawn(width)
        for token, column, value in ((7, 0, float("inf")), (17, 5, float("nan")), (27, width - 1, float("-inf"))):
            x[0, token, column] = value
        finite = ops.norm_scale_shift(x, d, d, backend="cuda").isfinite().all(-1)[0]
        assert (~finite).nonzero().flatten().tolist() == [7, 17, 27]


def test_compiled_by_inductor_it_is_one_graph() -> None:
    x, d = drawn(1, 195, 3072), drawn(1, 3072)
    with torch.no_grad():
        compiled = torch.compile(lambda a, b: ops.norm_scale_shift(a, b, b) * 2, fullgraph=True)
        torch.testing.assert_close(compiled(x, d), ops.norm_scale_shift(x, d, d) * 2)
