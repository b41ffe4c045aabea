"""The norms with a residual: against numpy in float64, and their use on any machine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from residual_norm_cases import BF16, CASES, FP16, FP32
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import kernwright
from kernwright import ops
from kernwright.core.registry import shipped_ops
from kernwright.ops.residual_norm.family import OPS, summed_rows_fit
from kernwright.runtime.call import BadArgument, Call
from kernwright.runtime.choice.fallback import CannotRun, Fallback

pytestmark = pytest.mark.filterwarnings("ignore::kernwright.Fallback")
RANDOM = np.random.default_rng(4)
X, RESIDUAL, SECOND = RANDOM.normal(size=(3, 2, 5, 12)) + 2
SCALE = RANDOM.normal(size=(2, 5))
W, B = RANDOM.normal(size=(2, 12))


def normed(total: np.ndarray, norm_type: str) -> np.ndarray:
    centred = total - total.mean(-1, keepdims=True) if norm_type == "layer" else total
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 0.01)  # type: ignore[no-any-return]


@pytest.mark.parametrize("norm_type", ["layer", "rms"])
@pytest.mark.parametrize("given", ["", "residual", "second", "row_scale", "residual second row_scale weight bias"])
def test_the_sum_and_its_norm(given: str, norm_type: str) -> None:
    arrays = {"residual": RESIDUAL, "second": SECOND, "row_scale": SCALE, "weight": W, "bias": B}
    own = {name: arrays[name] for name in given.split()}
    total = X * (SCALE[..., None] if "row_scale" in own else 1) + own.get("second", 0) + own.get("residual", 0)
    wanted = normed(total, norm_type) * own.get("weight", 1) + own.get("bias", 0)
    tensors = {name: torch.from_numpy(array) for name, array in {"x": X, **own}.items()}
    y, residual_out = shipped_ops()["add_norm"].oracle(tensors, {"norm_type": norm_type, "eps": 0.01})
    np.testing.assert_allclose(residual_out.numpy(), total, rtol=1e-12)
    np.testing.assert_allclose(y.numpy(), wanted, rtol=1e-11)
    assert residual_out.data_ptr() != tensors["x"].data_ptr()


def test_in_place() -> None:
    tensors = {name: torch.from_numpy(a) for name, a in {"x": X, "residual": RESIDUAL, "weight": W}.items()}
    found = shipped_ops()["fused_add_rms_norm_"].results(tensors, {"eps": 0.01})
    np.testing.assert_allclose(found["residual"].numpy(), X + RESIDUAL, rtol=1e-12)
    np.testing.assert_allclose(found["x"].numpy(), normed(X + RESIDUAL, "rms") * W, rtol=1e-11)


@pytest.mark.parametrize("backend", ["torch", None])
def test_the_sum_has_the_residuals_dtype_and_without_one_the_dtype_that_is_asked_for(backend: Any) -> None:
    x = torch.randn(3, 8, dtype=BF16)
    for residual, asked, wanted in ((FP32, False, FP32), (BF16, True, BF16), (None, False, BF16), (None, True, FP32)):
        before = None if residual is None else torch.randn(3, 8, dtype=residual)
        y, total = ops.add_norm(x, before, residual_in_fp32=asked, backend=backend)
        assert (y.dtype, total.dtype) == (BF16, wanted)
        assert torch.equal(total, (x if before is None else x + before).to(wanted))
    assert ops.add_norm(x.double(), residual_in_fp32=True)[1].dtype == torch.float64


@pytest.mark.parametrize("name", ["weight", "bias"])
@pytest.mark.parametrize("shape", [(8,), (1, 8)])
def test_no_result_may_replace_an_affine_row(shape: tuple[int, ...], name: str) -> None:
    x, residual = torch.randn(shape), torch.randn(shape)
    own = {name: torch.randn(8)}
    place, apart = own[name].view(shape), torch.empty(shape)
    for out, result in (((place, apart), "y"), ((apart, place), "residual_out")):
        for _ in range(2):  # the second call takes the fast path
            with pytest.raises(ValueError, match=f"^out: {result} overlaps {name}"):
                ops.add_norm(x, residual, **own, out=out)
    before = x + residual
    y, total = ops.add_norm(x, residual, **own, out=(x, residual))  # a result may replace an input
    assert y is x and total is residual and torch.equal(total, before)


@pytest.mark.parametrize("way", ["torch", "short"])
def test_a_tensor_changed_in_place_must_not_overlap_others(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: Any = "torch" if way == "torch" else None
    launched: list[Any] = []
    ops.fused_add_rms_norm_(torch.randn(4, 16), torch.randn(4, 16), backend=asked)  # a similar, correct call before
    if way == "short":  # with the error message of the library

        def launch(*given: Any) -> bool:
            launched.append(given)
            raise ValueError("x: overlaps residual, and cannot be written")

        monkeypatch.setattr(OPS["fused_add_rms_norm_"].dispatcher, "_latest", ("cuda", launch, (None, "close")))
    memory = torch.randn(6, 16)
    before = memory.clone()
    for _ in range(2):
        with torch.no_grad(), pytest.raises(BadArgument, match=r"^x: overlaps residual, and cannot be written"):
            ops.fused_add_rms_norm_(memory[:4], memory[1:5], backend=asked)
    assert torch.equal(memory, before) and len(launched) == 2 * (way == "short")
    with pytest.raises(BadArgument, match="x: overlaps residual"):
        kernwright.explain("fused_add_rms_norm_", memory[:4], memory[1:5])
    with pytest.raises(BadArgument, match="residual: overlaps weight"):
        ops.fused_add_rms_norm_(torch.randn(4, 16), memory[:4], memory[2], backend="torch")
    with pytest.raises(BadArgument, match="x: overlaps residual"):  # neither input covers the other
        ops.fused_add_rms_norm_(memory[:, :8], memory[:, 7:15], backend="torch")
    with pytest.raises(BadArgument, match="residual: overlaps itself, and cannot be written"):
        ops.fused_add_rms_norm_(torch.randn(4, 8), memory.as_strided((4, 8), (7, 1)), backend="torch")
    wanted = memory[:3] + memory[3:]
    ops.fused_add_rms_norm_(memory[:3], memory[3:], backend="torch")  # adjacent to each other
    assert torch.equal(memory[3:], wanted)


def zeros(*sizes: int, dtype: torch.dtype = BF16) -> Tensor:
    return torch.zeros(sizes, dtype=dtype)


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("add_norm", {"x": zeros()}, "x: has no dimension to norm over"),
    ("add_norm", {"x": zeros(2, 8), "residual": zeros(8)}, r"residual: is \[8\], x is \[2, 8\]"),
    ("add_norm", {"x": zeros(2, 8), "second": zeros(2, 1)}, r"second: is \[2, 1\], x is \[2, 8\]"),
    (
        "add_norm",
        {"x": zeros(2, 8), "row_scale": zeros(2, 1)},
        r"row_scale: is \[2, 1\], it must be \[2\], a number per",
    ),
    ("add_norm", {"x": zeros(2, 8), "weight": zeros(7)}, r"weight: is \[7\], it must be \[8\]"),
    ("add_norm", {"x": zeros(2, 8), "bias": zeros(1, 8)}, r"bias: is \[1, 8\], it must be \[8\]"),
    ("add_norm", {"x": zeros(2, 8), "norm_type": "batch"}, "norm_type: is 'layer' or 'rms', not 'batch'"),
    ("add_norm", {"x": zeros(2, 8, dtype=torch.int64)}, "x: is torch.int64, not floating point"),
    ("add_norm", {"x": zeros(2, 8), "residual": zeros(2, 8).to("meta")}, "residual: is on meta, x is on cpu"),
    ("fused_add_rms_norm_", {"x": zeros(2, 8), "residual": zeros(2, 9)}, r"residual: is \[2, 9\], x is \[2, 8\]"),
    ("fused_add_rms_norm_", {"x": zeros(2, 8), "residual": zeros(8).expand(2, 8)}, "residual: is expanded, and cannot"),
]


@pytest.mark.parametrize(("op", "given", "named"), WRONG)
def test_a_wrong_argument_is_named_by_every_backend(op: str, given: dict[str, Any], named: str) -> None:
    for backend in ("torch", None):
        with pytest.raises(ValueError, match=f"^{named}"):
            getattr(ops, op)(**given, backend=backend)


REFUSED = [
    ({"x": zeros(8, 2).t()}, "x has a last axis with gaps"),
    ({"x": zeros(1, 65537)}, "x is 65537 wide, over 65536"),
    ({"x": zeros(2, 8), "second": zeros(2, 8).double()}, "second is torch.float64"),
]


@pytest.mark.parametrize(("given", "why"), REFUSED)
def test_unsupported_calls_are_declined_with_a_reason(
    given: dict[str, Tensor], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")  # so that the device is no reason to refuse
    answers = {answer.implementation.backend: answer for answer in kernwright.explain("add_norm", **given).answers}
    assert answers["triton"].refusal == why and answers["torch"].refusal is None


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"residual": zeros(2, 8, dtype=FP32)},
        {"residual": zeros(2, 8), "second": zeros(2, 8, dtype=FP16)},
        {"row_scale": zeros(8)[::4]},
        {"residual": zeros(2, 8), "weight": zeros(8, dtype=FP16)},
    ],
)
def test_cuda_takes_every_form(given: dict[str, Tensor]) -> None:
    cuda = OPS["add_norm"].implementations[0]
    assert cuda.backend == "cuda"
    assert summed_rows_fit in cuda.requires
    assert summed_rows_fit(Call.of(shipped_ops()["add_norm"], (zeros(2, 8),), given)) is None


def test_a_fallback_warns_once_and_is_an_error_under_strict() -> None:
    x, residual = torch.randn(2, 3, 5), torch.randn(2, 3, 5)
    for own in OPS.values():
        own.dispatcher._told.clear()
        own.dispatcher._chosen.clear()
    with pytest.warns(Fallback, match=r"fused_add_rms_norm_ runs its reference: cuda \(close\): x is on cpu"):
        ops.fused_add_rms_norm_(x, residual)
    with kernwright.preferring(strict=True), pytest.raises(CannotRun, match="add_norm would run its reference"):
        ops.add_norm(x, residual)


def test_in_place_calls_with_gradients_follow_torchs_rules() -> None:
    weight = torch.randn(8, requires_grad=True)
    leaves = [torch.randn(3, 8, requires_grad=True) for _ in range(2)]
    x, residual = (leaf * 2 for leaf in leaves)
    wanted, total = ops.add_norm(*(leaf * 2 for leaf in leaves), weight)
    ops.fused_add_rms_norm_(x, residual, weight)
    assert torch.equal(x, wanted) and torch.equal(residual, total)
    found = torch.autograd.grad((x * residual).sum(), [*leaves, weight])
    for own, expected in zip(found, torch.autograd.grad((wanted * total).sum(), [*leaves, weight]), strict=True):
        torch.testing.assert_close(own, expected)
    with pytest.raises(RuntimeError, match="leaf Variable"):
        ops.fused_add_rms_norm_(*leaves)


def test_in_place_one_graph_for_any_number_of_rows_declares_what_it_changes() -> None:
    torch._dynamo.reset()
    graphs: list[list[str]] = []

    def noting(graph: Any, inputs: Any) -> Any:
        graphs.append([str(node.target) for node in graph.graph.nodes])  # tracing further would remove the op's nodes
        return torch._dynamo.lookup_backend("aot_eager")(graph, inputs)

    def block(x: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
        ops.fused_add_rms_norm_(x, residual, weight)
        return x + residual

    compiled = torch.compile(block, fullgraph=True, dynamic=True, backend=noting)
    counts, weight = [], torch.randn(16)
    with torch.no_grad():
        for rows in (6, 9, 33):
            given = torch.randn(2, rows, 16)
            own, eager = given.clone(), given.clone()
            assert torch.equal(compiled(*own, weight), block(*eager, weight))
            assert torch.equal(own, eager) and not torch.equal(own, given)
            counts.append(len(graphs))
    assert len(set(counts)) == 1, counts  # the first call may trace twice, because torch tries eps as a symbol
    assert any("kernwright.fused_add_rms_norm_" in target for target in graphs[0])
    schema = str(torch.ops.kernwright.fused_add_rms_norm_.default._schema)
    assert "Tensor(a0!) x, Tensor(a1!) residual, Tensor? weight" in schema and schema.endswith("-> ()")


@pytest.mark.parametrize("name", ["in place torch.bfloat16", "in place of fp32"])
def test_opcheck_passes(name: str) -> None:
    given = CASES[name].tensors().values()
    own = getattr(torch.ops.kernwright, ops.fused_add_rms_norm_.__name__).default
    assert set(torch.library.opcheck(own, (*given, 1e-6, None, None)).values()) == {"SUCCESS"}


def test_in_place_fakes_and_the_meta_device_are_taken() -> None:
    x, residual = torch.randn(3, 8), torch.randn(3, 8)
    kept = x.clone(), residual.clone()
    with FakeTensorMode() as mode:
        assert ops.fused_add_rms_norm_(mode.from_tensor(x), mode.from_tensor(residual)) is None
    assert torch.equal(x, kept[0]) and torch.equal(residual, kept[1]), "a fake has no content to change"
    assert ops.fused_add_rms_norm_(x.to("meta"), residual.to("meta")) is None


def test_an_explanation_takes_what_the_call_takes() -> None:
    x = zeros(2, 8, dtype=BF16)
    for given in ((x,), (x, None, zeros(8))):
        assert kernwright.explain("add_norm", *given, residual_in_fp32=True).answers[-1].refusal is None
    with pytest.raises(TypeError, match="residual_in_fp32"):
        kernwright.explain("fused_add_rms_norm_", x, x, residual_in_fp32=True)
