"""The norms under torch.compile and torch.library: one graph for any number of rows, and gradients on request."""

from __future__ import annotations

import warnings

import pytest
import torch
from plain_norm_cases import CASES
from torch._dynamo.testing import CompileCounterWithBackend
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from kernwright import ops
from kernwright.core.registry import shipped_ops

pytestmark = pytest.mark.filterwarnings("ignore::kernwright.Fallback")
CALLS = ["weight alone", "layer torch.float32 affine", "rms torch.float16 affine", "turned heads", "packed heads"]
NORMS = ["layer_norm", "rms_norm"]


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()


@pytest.mark.parametrize("name", CALLS)
def test_one_graph_with_the_same_result(name: str) -> None:
    own = getattr(ops, CASES[name].op)
    given = CASES[name].arguments()
    counter = CompileCounterWithBackend("aot_eager")
    with torch.no_grad():
        compiled = torch.compile(lambda *tensors: own(*tensors, eps=1e-5) * 2, fullgraph=True, backend=counter)
        assert torch.equal(compiled(*given), own(*given, eps=1e-5) * 2)
    assert counter.frame_count == 1
    assert any("kernwright" in str(node.target) for node in counter.graphs[0].graph.nodes)


@pytest.mark.parametrize("norm", NORMS)
def test_another_number_of_rows_uses_the_same_graph(norm: str) -> None:
    counter = CompileCounterWithBackend("aot_eager")
    own = getattr(ops, norm)
    compiled = torch.compile(lambda x, weight: own(x, weight), fullgraph=True, dynamic=True, backend=counter)
    counts = []
    with torch.no_grad():
        for tokens in (6, 7, 33, 100):
            x, weight = torch.randn(2, tokens, 64), torch.randn(64)
            assert torch.equal(compiled(x, weight), own(x, weight))
            counts.append(counter.frame_count)
    assert len(set(counts)) == 1, counts


def test_out_is_written_with_and_without_compile() -> None:
    x, weight = torch.randn(4, 64), torch.randn(64)
    expected = torch.nn.functional.rms_norm(x, (64,), weight, 1e-6)
    for call in (
        ops.rms_norm,
        torch.compile(lambda a, b, out: ops.rms_norm(a, b, out=out), fullgraph=True, backend="aot_eager"),
    ):
        out = torch.empty_like(x)
        call(x, weight, out=out)
        assert torch.equal(out, expected)


@pytest.mark.parametrize("norm", NORMS)
def test_a_call_with_gradients_is_traced_as_its_reference(norm: str) -> None:
    own = getattr(ops, norm)
    counter = CompileCounterWithBackend("aot_eager")
    x, weight = torch.randn(4, 64, requires_grad=True), torch.randn(64, requires_grad=True)
    found = torch.autograd.grad(
        torch.compile(lambda a, b: own(a, b), fullgraph=True, backend=counter)(x, weight).square().sum(), [x, weight]
    )
    assert not any("kernwright" in str(node.target) for node in counter.graphs[0].graph.nodes)
    for compiled, eager in zip(found, torch.autograd.grad(own(x, weight).square().sum(), [x, weight]), strict=True):
        torch.testing.assert_close(compiled, eager)


@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize("name", ["weight alone", "rms torch.float32 affine", "turned heads"])
def test_opcheck_passes(name: str, trains: bool) -> None:
    given = CASES[name].arguments()
    if trains:
        given = [None if tensor is None else tensor.detach().requires_grad_() for tensor in given]
    getattr(ops, CASES[name].op)  # the ops are registered when the family's calls are imported
    found = torch.library.opcheck(getattr(torch.ops.kernwright, CASES[name].op).default, (*given, 1e-6, None, None))
    assert set(found.values()) == {"SUCCESS"}


def test_the_library_ops_gradient_is_the_references() -> None:
    getattr(ops, "layer_norm")  # noqa: B009 - the ops are registered when the family's calls are imported
    given = [torch.randn(*sizes, dtype=torch.float64, requires_grad=True) for sizes in ((3, 8), (8,), (8,))]
    own = torch.ops.kernwright.layer_norm(*given, 1e-6, "torch", None)
    eager = shipped_ops()["layer_norm"].reference(*given)
    assert isinstance(eager, torch.Tensor)
    weight = torch.randn_like(eager)
    for found, expected in zip(
        torch.autograd.grad(own, given, weight), torch.autograd.grad(eager, given, weight), strict=True
    ):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("norm", NORMS)
def test_tensor_subclasses_use_their_own_dispatch(norm: str) -> None:
    own = getattr(ops, norm)
    x, weight = torch.randn(4, 16), torch.randn(16)
    expected = own(x, weight)
    with FakeTensorMode() as mode:
        y = own(mode.from_tensor(x), mode.from_tensor(weight))
        assert y.shape == x.shape and y.device == x.device
    assert own(x.to("meta"), weight.to("meta")).is_meta
    traced = make_fx(lambda a, b: own(a, b))(x, weight)
    assert any("kernwright" in str(node.target) for node in traced.graph.nodes)
    assert torch.equal(traced(x, weight), expected)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # vmap has no rule for the op and warns that it loops
        assert torch.equal(torch.vmap(lambda row: own(row, weight))(x), expected)


def test_a_wrong_argument_is_named_while_tracing() -> None:
    compiled = torch.compile(lambda a, b: ops.rms_norm(a, b), fullgraph=True, backend="aot_eager")
    with torch.no_grad(), pytest.raises(Exception, match=r"weight: is \[63\], it must be \[64\]"):
        compiled(torch.randn(4, 64), torch.randn(63))
