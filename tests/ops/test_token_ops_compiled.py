"""The ops over tokens under torch.compile and torch.library, their gradients, and their errors for wrong arguments."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import torch
from token_cases import BF16, arguments
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend
from torch._subclasses.fake_tensor import FakeTensorMode

from kernwright import ops
from kernwright.core.errors import KernwrightError
from kernwright.core.registry import shipped_ops

TABLE = "table torch.bfloat16 torch.float32"
RMS_TABLE = f"rms {TABLE}"
# The cases of a family, and the name of one case for each of its ops.
CALLS = [
    ("norm_select", "mixed"),
    ("norm_select", "residual gaps"),
    ("norm_tanh", "layer torch.float16 weight"),
    ("norm_tanh", "twice frame modulation"),
    ("ltx2_modulate", "mixed"),
    ("ltx2_modulate", "dual gaps"),
    ("ltx2_modulate", TABLE),
    ("ltx2_modulate", RMS_TABLE),
    ("ernie", "norm torch.float16"),
    ("ernie", "residual gaps"),
    ("ernie", "gate mixed"),
    ("residual_norm", "fp32 residual and all else"),
]


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()


def case_of(family: str, name: str) -> Any:
    return importlib.import_module(f"{family}_cases").CASES[name]


def parts(result: Any) -> tuple[Tensor, ...]:
    return (result,) if isinstance(result, Tensor) else tuple(result)


@pytest.mark.parametrize(("family", "name"), CALLS)
def test_one_graph_with_the_same_result_for_any_number_of_tokens(family: str, name: str) -> None:
    case = case_of(family, name)
    own, counter = getattr(ops, case.op), CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(
        lambda *tensors: [part * 2 for part in parts(own(*tensors, **case.scalars))],
        fullgraph=True, dynamic=True, backend=counter,
    )  # fmt: skip
    counts = []
    with torch.no_grad():
        for tokens in (6, 9, 33):
            given = arguments(type(case)(**{**vars(case), "tokens": tokens}))
            found = compiled(*given)
            for part, wanted in zip(found, parts(own(*given, **case.scalars)), strict=True):
                assert torch.equal(part, wanted * 2)
            counts.append(counter.frame_count)
    assert len(set(counts)) == 1, counts  # the first call may trace twice, because torch tries eps as a symbol
    assert any("kernwright" in str(node.target) for node in counter.graphs[0].graph.nodes)


@pytest.mark.parametrize(("family", "name", "trains"), [*((*call, False) for call in CALLS), (*CALLS[0], True)])
def test_opcheck_passes(family: str, name: str, trains: bool) -> None:
    case, given = case_of(family, name), arguments(case_of(family, name))
    if trains:
        given = [own.clone().requires_grad_() if own is not None and own.is_floating_point() else own for own in given]
    own = getattr(torch.ops.kernwright, getattr(ops, case.op).__name__).default
    found = torch.library.opcheck(own, (*given, *case.scalars.values(), None, None))
    assert set(found.values()) == {"SUCCESS"}


@pytest.mark.parametrize(("family", "name"), CALLS)
def test_calls_with_gradients_run_the_reference_and_the_library_op_agrees(family: str, name: str) -> None:
    case, op = case_of(family, name), shipped_ops()[case_of(family, name).op]
    given = [
        own.double().requires_grad_() if own is not None and own.is_floating_point() else own for own in arguments(case)
    ]
    wanted = [own for own in given if own is not None and own.requires_grad]
    library = getattr(torch.ops.kernwright, op.name)
    gradients = []
    for run in (
        lambda: op.reference(*given, **case.scalars),
        lambda: getattr(ops, op.name)(*given, **case.scalars),
        lambda: library(*given, *case.scalars.values(), "torch", None),
    ):
        found = parts(run())
        gradients.append(torch.autograd.grad(found, wanted, [torch.ones_like(part) for part in found]))
    for own, public, eager in zip(gradients[2], gradients[1], gradients[0], strict=True):
        torch.testing.assert_close(own, eager)
        assert torch.equal(public, eager)
    first = given[0]
    assert first is not None
    # Only one input requires a gradient: outputs that do not depend on it must not fail.
    alone = [first, *(None if own is None else own.detach() for own in given[1:])]
    assert torch.autograd.grad(parts(library(*alone, *case.scalars.values(), "torch", None))[0].sum(), first)


@pytest.mark.parametrize(("family", "name"), CALLS)
def test_fakes_outs_and_the_exact_contract(family: str, name: str) -> None:
    case = case_of(family, name)
    own, given = getattr(ops, case.op), arguments(case)
    with torch.no_grad():
        eager = parts(shipped_ops()[case.op].reference(*given, **case.scalars))
        for found, wanted in zip(parts(own(*given, **case.scalars, contract="exact")), eager, strict=True):
            assert torch.equal(found, wanted)
        outs = tuple(torch.empty_like(part) for part in eager)
        own(*given, **case.scalars, out=outs[0] if len(outs) == 1 else outs)
        for found, wanted in zip(outs, eager, strict=True):
            assert torch.equal(found, wanted)
        with FakeTensorMode() as mode:
            fakes = [None if tensor is None else mode.from_tensor(tensor) for tensor in given]
            for found, wanted in zip(parts(own(*fakes, **case.scalars)), eager, strict=True):
                assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
        with pytest.raises(KernwrightError, match="triton"):
            own(*given, **case.scalars, backend="triton", contract="exact")


def zeros(*sizes: int, dtype: torch.dtype = BF16) -> Tensor:
    return torch.zeros(sizes, dtype=dtype)


WRONG: list[tuple[str, str, dict[str, Tensor], str]] = [
    ("norm_select", "mixed", {"x": zeros(6, 64)}, r"x: is \[6, 64\], it must be \[B, S, D\]"),
    ("norm_select", "mixed", {"scale1": zeros(2, 63)}, r"scale1: is \[2, 63\], it must be \[2, 64\], a row per batch"),
    ("norm_select", "mixed", {"gate0": zeros(2, 1, 64)}, r"gate0: is \[2, 1, 64\], it must be"),
    ("norm_select", "mixed", {"shift0": zeros(3, 64)}, r"shift0: is \[3, 64\], it must be"),
    ("norm_select", "mixed", {"index": zeros(2, 7, dtype=torch.int32)}, r"index: is \[2, 7\], it must be \[2, 6\]"),
    ("norm_select", "mixed", {"index": zeros(2, 6)}, "index: is torch.bfloat16, it must be integers or booleans"),
    ("norm_select", "mixed", {"scale0": zeros(2, 64, dtype=torch.int32)}, "scale0: is torch.int32, not floating"),
    ("norm_select", "mixed", {"weight": zeros(63)}, r"weight: is \[63\], it must be \[64\]"),
    ("norm_select", "index torch.int8", {"bias": zeros(64)}, "bias: comes only with a weight"),
    ("norm_select", "residual mixed", {"residual": zeros(2, 5, 64)}, r"residual: is \[2, 5, 64\], x is"),
    ("norm_select", "residual mixed", {"residual_gate": zeros(2, 4, 1, 64)}, "residual_gate: 6 tokens do not divide"),
    ("norm_tanh", "gaps", {"scale": zeros(64)}, r"scale: is \[64\], which does not broadcast over x"),
    ("norm_tanh", "gaps", {"shift": zeros(2, 4, 1, 96)}, "shift: 6 tokens do not divide into 4 frames"),
    ("norm_tanh", "gaps", {"bias": zeros(96)}, "bias: an RMS norm has no bias"),
    ("norm_tanh", "twice gaps", {"scale2": zeros(3, 1, 96)}, r"scale2: is \[3, 1, 96\], which does not broadcast"),
    ("norm_tanh", "twice gaps", {"weight2": zeros(95)}, r"weight2: is \[95\], it must be \[96\]"),
    ("norm_tanh", "twice gaps odd", {"bias2": zeros(97)}, "bias2: comes only with a weight2"),
    (
        "ltx2_modulate",
        "mixed",
        {"scale": zeros(63)},
        r"scale: is \[63\], which does not broadcast with x, \[2, 6, 64\]",
    ),
    ("ltx2_modulate", "mixed", {"scale": zeros(5, 1, 1, 64), "shift": zeros(3, 1, 1, 64)}, "shift: is .* x and scale"),
    ("ltx2_modulate", "mixed", {"x": zeros(2, 6, 64, dtype=torch.int64)}, "x: is torch.int64, not floating point"),
    ("ltx2_modulate", "dual gaps", {"shift1": zeros(2, 5, 96)}, r"shift1: is \[2, 5, 96\], which does not broadcast"),
    ("ltx2_modulate", TABLE, {"scale_shift_table": zeros(3, 64)}, r"scale_shift_table: is \[3, 64\], it must be"),
    ("ltx2_modulate", TABLE, {"temb_scale_shift": zeros(2, 1, 64)}, r"temb_scale_shift: is \[2, 1, 64\], it must be"),
    ("ltx2_modulate", TABLE, {"temb_scale_shift": zeros(3, 1, 256)}, "temb_scale_shift: .* rows do not broadcast"),
    ("ltx2_modulate", RMS_TABLE, {"scale_shift_table": zeros(4, 64)}, r"scale_shift_table: is .* must be \[2, 64\]"),
    ("ltx2_modulate", RMS_TABLE, {"temb_scale_shift": zeros(2, 1, 256)}, r"temb_scale_shift: is .* \[B, 1, 128\]"),
    ("ltx2_modulate", RMS_TABLE, {"temb_scale_shift": zeros(3, 1, 128)}, "temb_scale_shift: .* rows do not broadcast"),
    ("ernie", "norm gaps", {"weight": zeros(95)}, r"weight: is \[95\], which does not broadcast with x, \[2, 6, 96\]"),
    ("ernie", "residual gaps", {"update": zeros(2, 5, 96)}, r"update: is \[2, 5, 96\], .* residual, \[2, 6, 96\]"),
    ("ernie", "residual gaps", {"shift": zeros(3, 1, 96)}, r"shift: is \[3, 1, 96\], which does not broadcast with"),
    ("ernie", "gate mixed", {"gate": zeros(64, dtype=torch.int32)}, "gate: is torch.int32, not floating point"),
]


@pytest.mark.parametrize(("family", "name", "changed", "named"), WRONG)
def test_a_wrong_argument_is_named(family: str, name: str, changed: dict[str, Tensor], named: str) -> None:
    case = case_of(family, name)
    tensors = {**case.tensors(), **changed}
    given = [tensors[parameter.name] for parameter in shipped_ops()[case.op].tensor_parameters]
    with torch.no_grad(), pytest.raises(ValueError, match=f"^{named}"):
        getattr(ops, case.op)(*given, **case.scalars)


def test_a_wrong_argument_is_named_while_tracing() -> None:
    compiled = torch.compile(
        lambda x, row, index: ops.norm_scale_shift_select(x, *[row] * 6, index), fullgraph=True, backend="aot_eager"
    )
    with torch.no_grad(), pytest.raises(Exception, match=r"scale0: is \[1, 15\], it must be \[1, 16\]"):
        compiled(torch.randn(1, 4, 16), torch.randn(1, 15), torch.zeros(1, 4, dtype=torch.int64))


def test_any_index_but_zero_picks_the_second_set() -> None:
    x, sets = torch.randn(1, 4, 16), [torch.randn(1, 16) for _ in range(6)]
    index = torch.tensor([[0, 1, -7, 2**40]])
    y, gate = ops.norm_scale_shift_select(x, *sets, index)
    same, picked = ops.norm_scale_shift_select(x, *sets, index != 0)
    assert torch.equal(y, same) and torch.equal(gate, picked)
    assert torch.equal(gate[0], torch.stack([sets[2][0], *[sets[5][0]] * 3]))
