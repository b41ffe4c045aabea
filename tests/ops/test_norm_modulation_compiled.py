"""The ops under torch.compile and torch.library: one graph for any number of tokens, and gradients on request."""

from __future__ import annotations

import subprocess
import sys
import warnings
from typing import Any

import pytest
import torch
from norm_modulation_cases import CASES
from torch._dynamo.testing import CompileCounterWithBackend
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from kernwright import ops
from kernwright.core.registry import shipped_ops

CALLS = ["batch modulation", "frame modulation", "residual token modulation", "residual torch.float16 mixed"]


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()


def arguments(name: str) -> list[Any]:
    case = CASES[name]
    tensors = case.tensors()
    return [tensors[parameter.name] for parameter in shipped_ops()[case.op].tensor_parameters]


@pytest.mark.parametrize("name", CALLS)
def test_one_graph_with_the_same_result(name: str) -> None:
    own = getattr(ops, CASES[name].op)
    counter = CompileCounterWithBackend("aot_eager")

    def block(*tensors: Any) -> Any:
        result = own(*tensors, eps=1e-5)
        return [part * 2 for part in (result if isinstance(result, tuple) else (result,))]

    with torch.no_grad():
        found = torch.compile(block, fullgraph=True, backend=counter)(*arguments(name))
        for part, expected in zip(found, block(*arguments(name)), strict=True):
            assert torch.equal(part, expected)
    assert counter.frame_count == 1
    assert any("kernwright" in str(node.target) for node in counter.graphs[0].graph.nodes)


def test_another_number_of_tokens_uses_the_same_graph() -> None:
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(
        lambda x, scale: ops.norm_scale_shift(x, scale, scale), fullgraph=True, dynamic=True, backend=counter
    )
    counts = []
    with torch.no_grad():
        for tokens in (6, 7, 33, 100):
            x, scale = torch.randn(2, tokens, 64), torch.randn(2, 1, 64)
            assert torch.equal(compiled(x, scale), ops.norm_scale_shift(x, scale, scale))
            counts.append(counter.frame_count)
    assert len(set(counts)) == 1, counts  # the first call may trace twice, because torch tries eps as a symbol


def test_out_is_written_under_compile_too() -> None:
    x, d, out = torch.randn(1, 4, 64), torch.randn(64), torch.empty(1, 4, 64)
    torch.compile(lambda a, b, o: ops.norm_scale_shift(a, b, b, out=o), fullgraph=True, backend="aot_eager")(x, d, out)
    assert torch.equal(out, ops.norm_scale_shift(x, d, d))


def test_a_call_with_gradients_is_traced_as_its_reference() -> None:
    counter = CompileCounterWithBackend("aot_eager")
    x, d = torch.randn(1, 4, 64, requires_grad=True), torch.randn(64, requires_grad=True)
    torch.compile(lambda a, b: ops.norm_scale_shift(a, b, b), fullgraph=True, backend=counter)(x, d).sum().backward()
    assert not any("kernwright" in str(node.target) for node in counter.graphs[0].graph.nodes)
    expected = [x.grad, d.grad]
    x.grad = d.grad = None
    ops.norm_scale_shift(x, d, d).sum().backward()
    for own, eager in zip(expected, (x.grad, d.grad), strict=True):
        torch.testing.assert_close(own, eager)


def test_a_wrong_argument_is_named_while_tracing() -> None:
    compiled = torch.compile(lambda a, b: ops.norm_scale_shift(a, b, b), fullgraph=True, backend="aot_eager")
    with torch.no_grad(), pytest.raises(Exception, match=r"scale: is \[63\], which does not broadcast over x"):
        compiled(torch.randn(1, 4, 64), torch.randn(63))


def test_the_backend_is_chosen_when_the_graph_runs() -> None:
    compiled = torch.compile(
        lambda a, b: ops.norm_scale_shift(a, b, b, backend="cuda"), fullgraph=True, backend="aot_eager"
    )
    with torch.no_grad(), pytest.raises(Exception, match="x is on cpu"):
        compiled(torch.randn(1, 4, 64), torch.randn(64))


@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_opcheck_passes(name: str, trains: bool) -> None:
    case = CASES[name]
    given = arguments(name)
    if trains:
        given = [None if tensor is None else tensor.clone().requires_grad_() for tensor in given]
    own = getattr(torch.ops.kernwright, case.op).default
    found = torch.library.opcheck(own, (*given, case.norm_type, 1e-6, None, None))
    assert set(found.values()) == {"SUCCESS"}


def test_the_library_ops_gradient_is_the_references() -> None:
    getattr(ops, "norm_scale_shift")  # noqa: B009 - the ops are registered when the family's calls are imported
    given = [torch.randn(*sizes, dtype=torch.float64, requires_grad=True) for sizes in ((1, 3, 8), (8,), (8,))]
    own = torch.ops.kernwright.norm_scale_shift(*given, None, None, "layer", 1e-6, "torch", None)
    eager = shipped_ops()["norm_scale_shift"].reference(*given)
    assert isinstance(eager, torch.Tensor)
    weight = torch.randn_like(eager)
    for found, expected in zip(
        torch.autograd.grad(own, given, weight), torch.autograd.grad(eager, given, weight), strict=True
    ):
        torch.testing.assert_close(found, expected)


class Marked(torch.Tensor):
    """A tensor subclass with memory and without its own dispatch."""


def test_tensor_subclasses_use_their_own_dispatch() -> None:
    """A fake tensor has no memory: a kernel that used its address would crash the process."""
    x, d = torch.randn(1, 4, 16), torch.randn(16)
    expected = ops.norm_scale_shift(x, d, d)  # the fast path is open from here on
    with FakeTensorMode() as mode:
        for own in (mode.from_tensor(x), torch.nn.Parameter(mode.from_tensor(x), requires_grad=False)):
            y = ops.norm_scale_shift(own, mode.from_tensor(d), mode.from_tensor(d))
            assert y.shape == x.shape and y.device == x.device
            y, r = ops.residual_norm_scale_shift(own, own, mode.from_tensor(d), mode.from_tensor(d))
            assert y.shape == r.shape == x.shape
    traced = make_fx(lambda a, b: ops.norm_scale_shift(a, b, b))(x, d)
    assert any("kernwright" in str(node.target) for node in traced.graph.nodes)
    assert torch.equal(traced(x, d), expected)
    assert torch.equal(ops.norm_scale_shift(x.as_subclass(Marked), d, d), expected)
    many = torch.randn(3, 1, 4, 16)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # vmap has no rule for the op and warns that it loops
        looped = torch.vmap(lambda one: ops.norm_scale_shift(one, d, d))(many)
    assert torch.equal(looped, torch.stack([ops.norm_scale_shift(one, d, d) for one in many]))
    gradient = torch.func.grad(lambda own: ops.norm_scale_shift(own, d, d).square().sum())(x)
    torch.testing.assert_close(
        gradient, torch.func.grad(lambda own: ops.norm_scale_shift(own, d, d, backend="torch").square().sum())(x)
    )
    assert torch.equal(ops.norm_scale_shift(torch.nn.Parameter(x, requires_grad=False), d, d), expected)


def test_a_fake_among_the_other_tensors_is_refused_by_the_foreign_function() -> None:
    from kernwright.ops.norm_modulation import family

    x, d = torch.randn(1, 4, 16), torch.randn(16)
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(d)
    launch = family.cpu_launch("norm_scale_shift")
    assert not launch(x, fake, d, None, None, "layer", 1e-6, torch.empty_like(x))


def test_the_first_call_of_an_op_may_be_inside_a_compiled_function() -> None:
    code = (
        "import torch; from kernwright import ops\n"
        "f = torch.compile(lambda x, d: ops.norm_scale_shift(x, d, d), fullgraph=True, backend='aot_eager')\n"
        "with torch.no_grad(): print(f(torch.randn(1, 4, 8), torch.randn(8)).shape)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "torch.Size([1, 4, 8])", done.stderr[-1500:]
