"""The kernels of the ops over tokens on a GPU: every case by the judge's rule, and behaviour that only a GPU has."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ltx2_exact_cases
import norm_tanh_cases
import pytest
import torch
from token_cases import BF16, FP32, arguments, every_case_of_kernels, fused
from torch import Tensor

import kernwright
from kernwright import ops

pytestmark = pytest.mark.gpu
GIB = 2**30

# A call of each op as its model makes it: tokens, then rows. The width suits the fastest path through the kernel.
ROWS: dict[str, Callable[[Tensor, Tensor], list[Tensor]]] = {
    "norm_scale_shift_select": lambda x, row: [x, *[row] * 6, halves(x)],
    "residual_norm_scale_shift_select": lambda x, row: [x, x, row, *[row] * 6, halves(x)],
    "norm_tanh_mul_add": lambda x, row: [x, row, x, row[0]],
    "norm_tanh_mul_add_norm_scale": lambda x, row: [x, row, x, row, row[0]],
    "rms_modulate": lambda x, row: [x, row, row],
    "dual_modulate": lambda x, row: [x, *[row] * 4],
    "ernie_norm_modulate": lambda x, row: [x, row[0], row, row],
    "ernie_residual_norm_modulate": lambda x, row: [x, x, row, row[0], row, row],
    "ernie_residual_gate": lambda x, row: [x, x, row],
    "rms_modulate_from_table": lambda x, row: [x, row[None].repeat(1, 1, 2), row.repeat(2, 1)],
    "dual_modulate_from_table": lambda x, row: [x, row[None].repeat(1, 1, 4), row.repeat(4, 1)],
}


PAIRS = [(op, backend) for op in ROWS for backend in fused(op)]


def halves(x: Tensor) -> Tensor:
    """Return an index in which every other token picks the second set."""
    return (torch.arange(x.shape[1], device=x.device, dtype=torch.int32) % 2).expand(x.shape[0], -1).contiguous()


def drawn(*sizes: int, dtype: torch.dtype = BF16) -> Tensor:
    return torch.randn(sizes, device="cuda", dtype=dtype)


def parts(result: Any) -> tuple[Tensor, ...]:
    return (result,) if isinstance(result, Tensor) else tuple(result)


def run(op: str, given: list[Tensor], backend: str | None) -> tuple[Tensor, ...]:
    return parts(getattr(ops, op)(*given, backend=backend))


def hold_near(found: tuple[Tensor, ...], wanted: tuple[Tensor, ...]) -> None:
    for own, expected in zip(found, wanted, strict=True):
        torch.testing.assert_close(own.float(), expected.float(), atol=0.05, rtol=0.03)


def case_of(family: str, name: str) -> Any:
    cases: Any = importlib.import_module(f"{family}_cases")
    return getattr(cases, "CUDA_CASES", cases.CASES)[name]


@pytest.mark.parametrize(("family", "name", "backend"), every_case_of_kernels())
def test_every_case_is_close(family: str, name: str, backend: str) -> None:
    case, cases = case_of(family, name), importlib.import_module(f"{family}_cases")
    cases.verify(case, lambda *a, **k: getattr(ops, case.op)(*a, **k, backend=backend), "cuda")


@pytest.mark.parametrize("name", [name for name in norm_tanh_cases.CUDA_CASES if name.startswith("kept")])
def test_gains_kept_for_many_tokens_are_close(name: str) -> None:
    """A GPU keeps them from four tokens for each block that runs at once."""
    case = replace(norm_tanh_cases.CUDA_CASES[name], tokens=3000)
    norm_tanh_cases.verify(case, lambda *a, **k: getattr(ops, case.op)(*a, **k, backend="cuda"), "cuda")


@pytest.mark.parametrize("backend", ["cuda", "triton"])
@pytest.mark.parametrize("name", ltx2_exact_cases.CASES)
def test_exact_cases_have_the_chains_bits(name: str, backend: str) -> None:
    case = ltx2_exact_cases.CASES[name]
    ltx2_exact_cases.verify(case, lambda *a, **k: getattr(ops, case.op)(*a, **k, backend=backend), "cuda")


@pytest.mark.parametrize("op", ROWS)
def test_the_best_backend_runs_by_default(op: str) -> None:
    given = ROWS[op](drawn(1, 19, 3072), drawn(1, 3072))
    chosen = kernwright.explain(op, *given).chosen
    assert chosen is not None and chosen.backend == fused(op)[0]
    hold_near(run(op, given, None), run(op, given, "torch"))


@pytest.mark.parametrize(("op", "backend"), PAIRS)
def test_a_captured_call_replays_with_new_content(op: str, backend: str) -> None:
    x, row = drawn(1, 200, 3072), drawn(1, 3072)
    given = ROWS[op](x, row)
    run(op, given, backend)  # compiles the kernel before the capture
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = run(op, given, backend)
    for _ in range(3):
        x.normal_()
        graph.replay()
        hold_near(found, run(op, given, "torch"))


@pytest.mark.parametrize(("op", "backend"), PAIRS)
def test_it_runs_on_the_current_stream(op: str, backend: str) -> None:
    """The call follows a long wait on a side stream. On another stream it would read inputs before they are written."""
    row, content = drawn(1, 1024), drawn(1, 64, 1024)
    run(op, ROWS[op](content, row), backend)
    mine, stream = torch.full_like(content, float("nan")), torch.cuda.Stream()
    given = ROWS[op](mine, row)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        mine.copy_(content)
        found = run(op, given, backend)
    torch.cuda.synchronize()
    hold_near(found, run(op, ROWS[op](content, row), "torch"))


@pytest.mark.usefixtures("much_gpu_memory")
@pytest.mark.parametrize(("op", "backend"), PAIRS)
def test_tensors_beyond_two_to_the_31_elements(op: str, backend: str) -> None:
    tokens, width = 2**31 // 3072 + 1000, 3072
    if torch.cuda.mem_get_info()[0] < 40 * GIB:
        pytest.skip("needs 40 GiB of GPU memory")
    x, row = torch.empty(1, tokens, width, device="cuda", dtype=BF16).normal_(), drawn(1, width)
    given = ROWS[op](x, row)
    found = run(op, given, backend)
    for start in (0, tokens // 2, tokens - 3):
        part = slice(start, start + 3)
        cut = [own[:, part] if own.ndim > 1 and own.shape[1] == tokens else own for own in given]
        hold_near(tuple(own[:, part] for own in found), run(op, cut, "torch"))


@pytest.mark.parametrize(
    ("family", "name", "backend"), [own for own in every_case_of_kernels() if "gaps" in own[1] or "chunk" in own[1]]
)
def test_nothing_is_copied_silently(family: str, name: str, backend: str) -> None:
    case = case_of(family, name)
    own, given = getattr(ops, case.op), arguments(case, "cuda")
    own(*given, backend=backend)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    results = parts(own(*given, backend=backend))
    outputs = sum((result.numel() * result.element_size() + 511) // 512 * 512 for result in results)
    assert torch.cuda.max_memory_allocated() - before <= outputs


@pytest.mark.parametrize(("op", "backend"), PAIRS)
def test_a_nonfinite_element_affects_its_own_token_alone(op: str, backend: str) -> None:
    x = drawn(1, 40, 3072, dtype=FP32)
    x[0, 17, 5] = float("nan")
    one = torch.ones(1, 3072, device="cuda")
    finite = run(op, ROWS[op](x, one), backend)[0].isfinite().all(-1)[0]
    assert not finite[17] and finite.sum() == 39


@pytest.mark.parametrize("width", [2048, 4096])
def test_an_exact_norm_runs_the_kernel_if_torch_sums_in_its_order(width: int) -> None:
    """Where torch sums in another order, the chain itself runs: at an address off 16 bytes, or a width that is no
    multiple of 4."""
    x, row = drawn(2, 33, width), drawn(2, 1, width)
    assert str(kernwright.explain("rms_modulate", x, row, row, contract="exact").chosen) == "cuda (exact)"
    with kernwright.preferring("triton"):
        assert str(kernwright.explain("rms_modulate", x, row, row, contract="exact").chosen) == "triton (exact)"
    whole = drawn(33 * width + 1, dtype=FP32)
    for tokens in (x, whole[:-1].view(1, 33, width), whole[1:].view(1, 33, width), drawn(1, 33, width + 1)):
        rows = drawn(1, 1, tokens.shape[-1])
        found, wanted = (
            ops.rms_modulate(tokens, rows, rows, contract="exact", backend=backend) for backend in (None, "torch")
        )
        assert torch.equal(found, wanted)


@pytest.mark.parametrize("op", [op for op, backend in PAIRS if backend == "cuda"])
def test_many_threads_at_once(op: str) -> None:
    given = ROWS[op](drawn(1, 100, 3072), drawn(1, 3072))
    expected, wrong = run(op, given, "cuda"), []

    def call() -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(20):
                wrong.extend(1 for pair in zip(run(op, given, "cuda"), expected, strict=True) if not torch.equal(*pair))

    torch.cuda.synchronize()
    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("op", ROWS)
def test_compiled_by_inductor_it_is_one_graph(op: str) -> None:
    given = ROWS[op](drawn(1, 195, 3072), drawn(1, 3072))
    with torch.no_grad():
        compiled = torch.compile(lambda *own: parts(getattr(ops, op)(*own))[0] * 2, fullgraph=True)
        torch.testing.assert_close(compiled(*given), run(op, given, None)[0] * 2)
