"""x with more than three axes: how its tensors fold into views, and calls over it on every backend."""

from __future__ import annotations

import math

import pytest
import torch
from folded_cases import CASES, EXACT, LAYOUTS, LIES, OPS, Case, of, parts, verify
from interpreted_cases import interpreted_families
from token_cases import FP32, arguments
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend

import kernwright
from kernwright import nn, ops
from kernwright.core.registry import shipped_ops
from kernwright.ops._shared.folding import folded
from kernwright.ops._shared.modulation_layout import layout
from kernwright.runtime.target import compiler

needs_compiler = pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler")
NORMS = ("norm_scale_shift", "residual_norm_scale_shift")  # ops with kernels for a CPU


@pytest.mark.parametrize("lies", LIES)
@pytest.mark.parametrize("layouts", [*LAYOUTS, ("BF1", "BF1")], ids=" ".join)
def test_every_token_is_in_the_views_once_with_its_own_rows_and_nothing_is_copied(
    layouts: tuple[str, ...], lies: str
) -> None:
    tensors = Case("twin", "scale_shift", layouts[:2], lies, dtype=FP32).tensors()
    x, scale, shift = (own for own in tensors.values() if own is not None)
    y, times = torch.zeros_like(x), torch.zeros_like(x)
    wanted = torch.zeros_like(x) + x * scale + shift
    for own, to, count, by, more in folded((x, y, times), (scale, shift)):
        assert own is not None and to is not None and count is not None and by is not None and more is not None
        assert own.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
        assert by.untyped_storage().data_ptr() == scale.untyped_storage().data_ptr()
        spread = [_spread(row, own) for row in (by, more)]
        to += own * spread[0] + spread[1]
        count += 1
    assert (times == 1).all()
    assert torch.equal(y, wanted)


def _spread(row: Tensor, x: Tensor) -> Tensor:
    """Return a modulation token by token, as kernels address it."""
    own, (batches, tokens, width) = layout(row, x), x.shape
    places = [(b, t // own.tokens_per_row) for b in range(batches) for t in range(tokens)]
    starts = [row.storage_offset() + b * own.batch_step + t * own.token_step for b, t in places]
    rows = [row.as_strided((width,), (own.channel_step,), start) for start in starts]
    return torch.stack(rows).view(batches, tokens, width)


def rounds(x: Tensor, *modulations: Tensor, y: Tensor | None = None) -> list[list[int]]:
    """Return the sizes of x in each launch, without its width."""
    views = folded((x, torch.empty_like(x) if y is None else y), modulations)
    return [list(own.shape[:-1]) for own, *_ in views if own is not None]


def test_axes_are_merged_into_as_few_launches_as_possible() -> None:
    x, row = torch.zeros(2, 3, 5, 8), torch.zeros(8)
    frame, batch, place = torch.zeros(2, 3, 1, 8), torch.zeros(2, 1, 1, 8), torch.zeros(5, 8)
    assert rounds(x, row) == rounds(x) == rounds(x, x) == [[1, 30]]
    assert rounds(x, frame) == [[6, 5]]
    assert rounds(x, batch) == [[2, 15]]
    assert rounds(x, place) == [[6, 5]]
    assert rounds(x, frame, batch) == [[2, 15]]  # batches are covered by frames
    assert rounds(x, frame, place) == [[6, 5]]
    assert rounds(x, batch, place) == [[5, 6]]  # places act as batches
    assert rounds(x, place, batch, torch.zeros(1, 3, 1, 8)) == [[3, 5]] * 2
    assert rounds(x.transpose(1, 2)) == [[1, 30]]  # in the order of memory
    assert rounds(x.transpose(1, 2), y=torch.zeros(2, 5, 3, 8)) == [[5, 3]] * 2
    assert rounds(torch.zeros(2, 3, 15, 8)[:, :, 5:10], frame) == [[6, 5]]
    assert rounds(torch.zeros(1, 2, 1, 3, 5, 8), frame.view(1, 2, 1, 3, 1, 8)) == [[6, 5]]


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str | None]:
    pytest.importorskip("triton")
    return interpreted_families(("folded",))["folded"]


@pytest.mark.parametrize("name", CASES)
def test_every_case_holds_in_triton(name: str, outcomes: dict[str, str | None]) -> None:
    assert outcomes[name] is None


@pytest.mark.parametrize("op", OPS)
def test_explain_names_a_kernel_for_every_case(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    monkeypatch.setenv("TRITON_INTERPRET", "1")  # so that tensors of a CPU are no reason to refuse
    for case in of(op).values():
        given = [None if own is None else own.to(FP32) for own in arguments(case)]
        found = kernwright.explain(op, *given, **case.scalars)
        own = [answer for answer in found.answers if answer.implementation.contract == shipped_ops()[op].contract]
        refusals = {answer.implementation.backend: answer.refusal for answer in own}
        assert refusals["triton"] is None, case.name
        assert "dimensions" not in str(refusals["cuda"]), case.name


@needs_compiler
@pytest.mark.parametrize("op", NORMS)
def test_the_backend_that_explain_names_for_a_cpu_runs(op: str) -> None:
    for case in of(op).values():
        given = arguments(case)
        chosen = kernwright.explain(op, *given, **case.scalars).chosen
        assert chosen is not None and chosen.backend == "cpu", case.name
        with kernwright.preferring(strict=True):
            for _ in range(2):  # the second call takes the fast path
                verify(case, getattr(ops, op))


@needs_compiler
@pytest.mark.parametrize("lies", LIES)
def test_an_output_may_lie_in_any_order(lies: str) -> None:
    case = Case("outputs", "norm_scale_shift", ("BF1", "B11"), lies)
    given = arguments(case)
    wanted = ops.norm_scale_shift(*given, backend="cpu")
    for order in ((0, 1, 2), (2, 1, 0), (1, 0, 2)):
        sizes = [wanted.shape[axis] for axis in order]
        out = torch.empty(*sizes, 24, dtype=wanted.dtype).permute(*(order.index(axis) for axis in range(3)), 3)
        assert ops.norm_scale_shift(*given, backend="cpu", out=out) is out
        assert torch.equal(out, wanted)


def test_more_axes_than_are_folded_run_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    x, row = torch.zeros(2, *(1,) * 15, 8), torch.zeros(8)
    for op, given in (("scale_shift", (x, row, row)), ("norm_scale_shift", (x, row, row))):
        found = kernwright.explain(op, *given)
        assert found.chosen is not None and found.chosen.backend == "torch"
        assert any(answer.refusal == "x has 17 dimensions, not 2 to 16" for answer in found.answers)
        assert getattr(ops, op)(*given, backend="torch").shape == x.shape


X, D = torch.zeros(2, 3, 5, 8), torch.zeros(8)
WRONG: list[tuple[str, list[Tensor], str]] = [
    ("scale_shift", [X, X[:, :2], D], r"scale: is \[2, 2, 5, 8\], which does not broadcast over x"),
    ("scale_shift", [X, D, X[0, 0, :4]], r"shift: is \[4, 8\]"),
    ("scale_shift", [X, X[None], D], "scale: has 5 dimensions, x has 4"),
    ("residual_gate", [X, X, X[..., :7]], r"gate: is \[2, 3, 5, 7\]"),
    ("residual_gate", [X, X[:, :2], D], "update: is"),
    ("norm_scale_shift", [X, D, X[:, :2]], "shift: (is|has 2 where x has 3 in axis 1)"),  # in the words of the C++ code
    ("residual_norm_scale_shift", [X, X[:1], D, D], "residual: (is|has another shape than x)"),
    ("residual_norm_scale_shift", [X, X, D, D, X[:, :2]], "gate: (is|has 2 where x has 3 in axis 1)"),
    ("norm_tanh_mul_add", [X, X[:, :2], D], "scale: is"),
    ("norm_tanh_mul_add_norm_scale", [X, D, D, X[:, :2]], "scale2: is"),
    ("rms_modulate", [X, D, X[:, :2]], "shift: is"),
    ("dual_modulate", [X, D, D, X[:, :2], D], "scale1: is"),
    ("dual_modulate_from_table", [X, torch.zeros(2, 1, 32), torch.zeros(4, 8)], "temb_scale_shift: is"),
    ("ernie_residual_gate", [X, X, X[:, :2]], "gate: is"),
    ("ernie_residual_norm_modulate", [X, X, D, D, X[:, :2], D], "scale: is"),
    ("norm_scale_shift_select", [X, *[D[None]] * 6, X[0, 0, :, 0].int()], r"x: is \[2, 3, 5, 8\], it must be"),
]  # fmt: skip


@pytest.mark.parametrize(("op", "given", "named"), WRONG, ids=lambda own: own if isinstance(own, str) else "")
def test_a_wrong_argument_is_named(op: str, given: list[Tensor], named: str) -> None:
    for backend in (None, "torch"):
        with pytest.raises(ValueError, match=f"^{named}"):
            getattr(ops, op)(*given, backend=backend)


@pytest.mark.filterwarnings("ignore::kernwright.Fallback")
@pytest.mark.parametrize("op", ["scale_shift", "residual_norm_scale_shift", "dual_modulate", "ernie_norm_modulate"])
def test_one_graph_for_any_number_of_frames(op: str) -> None:
    torch._dynamo.reset()
    counter, counts = CompileCounterWithBackend("aot_eager"), []
    compiled = torch.compile(
        lambda *tensors: [part * 2 for part in parts(getattr(ops, op)(*tensors))],
        fullgraph=True, dynamic=True, backend=counter,
    )  # fmt: skip
    with torch.no_grad():
        for frames in (3, 7, 9):
            x = torch.randn(2, frames, 5, 24).to(torch.bfloat16).transpose(1, 2)
            drawn = arguments(Case("traced", op, ("B11", "BP1")))
            given = [x if own is not None and own.shape == (2, 3, 5, 24) else own for own in drawn]
            for part, wanted in zip(compiled(*given), parts(getattr(ops, op)(*given)), strict=True):
                assert torch.equal(part, wanted * 2)
            counts.append(counter.frame_count)
    assert len(set(counts)) == 1, counts
    assert any("kernwright" in str(node.target) for graph in counter.graphs for node in graph.graph.nodes)


@pytest.mark.filterwarnings("ignore::kernwright.Fallback")
def test_modules_take_more_axes() -> None:
    x, gate, row = torch.randn(2, 3, 5, 8), torch.randn(2, 3, 1, 8), torch.randn(2, 1, 1, 8)
    assert torch.equal(nn.MulAdd()(x, gate, row, 1), x * (1 + gate) + row)
    normed = nn.LayerNormScaleShift(8)(x, row, gate)
    torch.testing.assert_close(normed, ops.norm_scale_shift(x, gate, row, backend="torch"))
    found = nn.ScaleResidualRMSNormScaleShift(8)(x, x, gate, row, gate)
    wanted = ops.residual_norm_scale_shift(x, x, gate, row, gate, norm_type="rms", backend="torch")
    for own, expected in zip(found, wanted, strict=True):
        torch.testing.assert_close(own, expected)


def test_there_is_a_case_for_each_op_and_each_way_to_lie() -> None:
    assert len(CASES) == len(OPS) * (len(LIES) + len(LAYOUTS) + 5) and set(EXACT) < set(OPS)
    assert all(math.prod(own.shape) for own in arguments(Case("sizes", OPS[0])) if own is not None)
