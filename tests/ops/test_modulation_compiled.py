"""The ops under torch.compile and torch.library: one graph for any number of tokens, and gradients on request."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from modulation_cases import CASES
from torch._dynamo.testing import CompileCounterWithBackend
from torch._subclasses.fake_tensor import FakeTensorMode

from kernwright import ops
from kernwright.core.registry import shipped_ops
from kernwright.runtime.choice.fallback import Fallback

CALLS = ["frame and channel", "fp16 by fp32", "row gate", "gate fp32 residual", "add 4d", "add promoted"]
# On a CPU the references run.
pytestmark = pytest.mark.filterwarnings("ignore::kernwright.Fallback")


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()


@pytest.mark.parametrize("name", CALLS)
def test_one_graph_with_the_same_result(name: str) -> None:
    case = CASES[name]
    own = getattr(ops, case.op)
    counter = CompileCounterWithBackend("aot_eager")
    with torch.no_grad():
        compiled = torch.compile(lambda *given: own(*given, **case.scalars) * 2, fullgraph=True, backend=counter)
        assert torch.equal(compiled(*case.tensors()), own(*case.tensors(), **case.scalars) * 2)
    assert counter.frame_count == 1
    assert any("kernwright" in str(node.target) for node in counter.graphs[0].graph.nodes)


@pytest.mark.parametrize("op", ["scale_shift", "residual_gate", "broadcast_add"])
def test_another_number_of_tokens_uses_the_same_graph(op: str) -> None:
    own, counter = getattr(ops, op), CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(own, fullgraph=True, dynamic=True, backend=counter)
    counts = []
    with torch.no_grad():
        for tokens in (6, 7, 33, 100):
            x, row = torch.randn(2, tokens, 64), torch.randn(2, 1, 64)
            given = {"scale_shift": (x, row, row), "residual_gate": (x, x, row), "broadcast_add": (row, x)}[op]
            assert torch.equal(compiled(*given), own(*given))
            counts.append(counter.frame_count)
    assert len(set(counts)) == 1, counts


def test_out_is_written_under_compile_too() -> None:
    x, d, out = torch.randn(1, 4, 64), torch.randn(64), torch.empty(1, 4, 64)
    torch.compile(lambda a, b, o: ops.scale_shift(a, b, b, out=o), fullgraph=True, backend="aot_eager")(x, d, out)
    assert torch.equal(out, x * (1 + d) + d)


def test_a_call_with_gradients_is_traced_as_its_reference() -> None:
    counter = CompileCounterWithBackend("aot_eager")
    x, d = torch.randn(1, 4, 64, requires_grad=True), torch.randn(64, requires_grad=True)
    torch.compile(lambda a, b: ops.scale_shift(a, b, b), fullgraph=True, backend=counter)(x, d).sum().backward()
    assert not any("kernwright" in str(node.target) for node in counter.graphs[0].graph.nodes)
    torch.testing.assert_close(x.grad, (1 + d.detach()).expand(1, 4, 64))


@pytest.mark.parametrize(
    ("op", "given", "named"),
    [
        ("scale_shift", ((1, 4, 64), (63,), (64,)), r"scale: is \[63\], which does not broadcast over x"),
        ("residual_gate", ((1, 4, 64), (1, 4, 64), (63,)), r"gate: is \[63\], which does not broadcast over update"),
        (
            "residual_gate",
            ((1, 4, 64), (1, 5, 64), (64,)),
            r"update: is \[1, 5, 64\], which does not broadcast with",
        ),
        # The gate does not fit the update but fits the residual, so the error must name the update.
        ("residual_gate", ((2, 6, 8), (2, 6, 7), (8,)), r"update: is \[2, 6, 7\], which does not broadcast with"),
        ("broadcast_add", ((4, 64), (5, 64)), r"b: is \[5, 64\], which does not broadcast with a, \[4, 64\]"),
    ],
)
def test_a_wrong_argument_is_named_while_tracing_and_in_a_call(op: str, given: Any, named: str) -> None:
    tensors = [torch.randn(sizes) for sizes in given]
    own = getattr(ops, op)
    with pytest.raises(ValueError, match=named):
        own(*tensors)
    with torch.no_grad(), pytest.raises(Exception, match=named):
        torch.compile(own, fullgraph=True, backend="aot_eager")(*tensors)


@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_opcheck_passes(name: str, trains: bool) -> None:
    case = CASES[name]
    given = [tensor.clone().requires_grad_() if trains else tensor for tensor in case.tensors()]
    getattr(ops, case.op)  # the ops are registered when the family's calls are imported
    own = getattr(torch.ops.kernwright, case.op).default
    found = torch.library.opcheck(own, (*given, *case.scalars.values(), None, None))
    assert set(found.values()) == {"SUCCESS"}


@pytest.mark.parametrize("op", ["scale_shift", "residual_gate", "broadcast_add"])
def test_the_library_ops_gradient_is_the_references(op: str) -> None:
    getattr(ops, op)
    sizes = {"scale_shift": [(1, 3, 8), (8,), (1, 8)], "residual_gate": [(1, 3, 8)] * 2 + [(8,)]}.get(
        op, [(8,), (3, 8)]
    )
    given = [torch.randn(own, dtype=torch.float64, requires_grad=True) for own in sizes]
    scalars = [0.5] if op == "scale_shift" else []
    own = getattr(torch.ops.kernwright, op)(*given, *scalars, "torch", None)
    eager = shipped_ops()[op].reference(*given, **({"scale_constant": 0.5} if scalars else {}))
    assert isinstance(eager, torch.Tensor)
    weight = torch.randn_like(eager)
    for found, expected in zip(
        torch.autograd.grad(own, given, weight), torch.autograd.grad(eager, given, weight), strict=True
    ):
        torch.testing.assert_close(found, expected)


def test_a_fake_tensor_uses_its_own_dispatch() -> None:
    x, d = torch.randn(2, 4, 16, dtype=torch.bfloat16), torch.randn(16)
    with FakeTensorMode() as mode:
        own, by = mode.from_tensor(x), mode.from_tensor(d)
        assert ops.scale_shift(own, by, by).dtype == torch.bfloat16
        assert ops.residual_gate(own.float(), own, by).dtype == torch.float32
        assert ops.residual_gate(own[:1], own, by).shape == x.shape
        assert ops.broadcast_add(own, by).dtype == torch.float32


def test_vmap_and_func_see_an_op_of_torch_library() -> None:
    many, d = torch.randn(3, 1, 4, 16), torch.randn(16)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # vmap has no rule for the op and warns that it loops
        looped = torch.vmap(lambda one: ops.scale_shift(one, d, d))(many)
    assert torch.equal(looped, many * (1 + d) + d)
    gradient = torch.func.grad(lambda own: ops.residual_gate(own, own, d).sum())(many[0])
    torch.testing.assert_close(gradient, (1 + d).expand(1, 4, 16))


def test_on_a_cpu_the_reference_runs_with_one_warning() -> None:
    from kernwright.ops.catalog import dispatcher

    dispatcher("scale_shift")._told.clear()
    dispatcher("scale_shift")._chosen.clear()
    x, d = torch.randn(1, 3, 24), torch.randn(24)
    with pytest.warns(Fallback, match="scale_shift runs its reference: cuda .*x is on cpu"):
        assert torch.equal(ops.scale_shift(x, d, d, scale_constant=0.0), x * (0 + d) + d)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ops.scale_shift(x[:, :2], d, d)
