"""A drafted op computes the same as the function from which it was drafted."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from kernwright.admission.op_draft import OpDraft, draft_op
from kernwright.capture.capture import Capture, CapturedCall, CaptureHeader
from kernwright.capture.describe import as_json, describe, result_of
from kernwright.capture.wrapper import _parameters_of
from kernwright.core.errors import KernwrightError
from kernwright.core.op import Op
from kernwright.core.registry import ops_from_file

UTIL = """
LIMIT = 30.0

def soft_cap(x, limit=LIMIT):
    return limit * (x.float() / limit).tanh()
"""
MODEL = '''
import torch
from torch import nn
from util import soft_cap as cap

raise_if_run = 1 / 0 if __name__ == "__main__" else None
SCALE = 1.5


def gated(x, *, gate=None, factor: float = 2.0, mode: str = "mul"):
    """Gate x."""
    # A comment that stays.
    y = cap(x * SCALE * factor)
    if gate is not None:
        y = y * gate if mode == "mul" else y + gate
    return y


def add_norm(x, residual, weight, eps=1e-6):
    total = x + residual
    normed = total.float() * torch.rsqrt(total.float().pow(2).mean(-1, keepdim=True) + eps)
    normed = normed * weight
    return normed, total


def scale_(x, factor):
    x.mul_(factor)
    return x


def stats(x, dtype=torch.float64):
    return {"mean": x.mean(-1, dtype=dtype), "more": [x.amax(-1)]}


def modulate(x, mods): return x * (1 + mods[0]) + mods[1]


def pick(table, ids, x):
    return x + table[ids]


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.eps = 1e-5
        self.weight = nn.Parameter(torch.randn(8))

    def forward(self, x):
        variance = x.pow(2).mean(-1, keepdim=True)
        return x * torch.rsqrt(variance + self.eps) * self.weight


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = Norm()

    def forward(self, x):
        return self.norm(x)


def configured(x, config):
    return x * config
'''


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a module of a user's project in the current folder."""
    (tmp_path / "util.py").write_text(UTIL)
    (tmp_path / "model.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    spec = importlib.util.spec_from_file_location("model", tmp_path / "model.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def called(name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> CapturedCall:
    given = [describe(value) for value in args]
    named = {key: describe(value) for key, value in kwargs.items()}
    copies = [value.clone() if isinstance(value, torch.Tensor) else value for value in args]
    return CapturedCall.model_validate(
        {
            "call": name,
            "arguments": [
                {"name": key, "value": as_json(value)} for key, value in _parameters_of(function).named(given, named)
            ],
            "returns": as_json(result_of(describe(function(*copies, **kwargs)))),
            "count": 1,
        }
    )


def drafted(*calls: CapturedCall) -> tuple[OpDraft, Op]:
    name = calls[0].call
    capture = Capture(header=CaptureHeader(program="p", targets=(name,)), calls=calls)
    draft = draft_op(capture, name, None, Path("calls.jsonl"))
    file = Path("ops.py")
    file.write_text(draft.text)
    (op,) = ops_from_file(file).values()
    return draft, op


def x(*shape: int) -> torch.Tensor:
    return torch.randn(*shape)


def test_optional_tensors_keywords_and_helpers_of_another_file(model: Any) -> None:
    inputs = {"x": x(4, 8), "gate": x(8)}
    draft, op = drafted(
        called("model:gated", model.gated, inputs["x"], gate=inputs["gate"], factor=3),
        called("model:gated", model.gated, inputs["x"], mode="add"),
    )
    assert (op.name, op.outputs, op.activations, op.inplace) == ("gated", ("y",), ("x",), ())
    assert [(p.name, p.optional) for p in op.tensor_parameters] == [("x", False), ("gate", True)]
    assert op.scalar_defaults == {"factor": 2.0, "mode": "mul"}
    assert torch.equal(op.call(inputs, {"factor": 3.0})[0], model.gated(**inputs, factor=3.0))
    assert op.oracle(inputs, {})[0].dtype == torch.float64, "casts to float32 must not limit the oracle"
    assert "# A comment that stays." in draft.text
    assert len(op.digest) == 64


def test_several_outputs_take_the_names_that_are_returned(model: Any) -> None:
    inputs = {"x": x(4, 8), "residual": x(4, 8), "weight": x(8)}
    draft, op = drafted(called("model:add_norm", model.add_norm, *inputs.values()))
    assert (op.activations, draft.mapping) == (("x", "residual"), {"normed": "return[0]", "total": "return[1]"})
    for mine, theirs in zip(op.call(inputs, {}), model.add_norm(**inputs), strict=True):
        assert torch.equal(mine, theirs)


def test_a_function_that_changes_and_returns_its_argument(model: Any) -> None:
    inputs = {"x": x(4, 8), "factor": x(8)}
    _, op = drafted(called("model:scale_", model.scale_, *inputs.values()))
    assert (op.outputs, op.inplace) == ((), ("x",))
    assert torch.equal(op.results(inputs, {})["x"], inputs["x"] * inputs["factor"])


def test_nested_results_and_constants(model: Any) -> None:
    data = x(4, 8)
    _, op = drafted(called("model:stats", model.stats, data))
    assert op.outputs == ("y0", "y1")
    assert torch.equal(op.call({"x": data}, {})[0], data.double().mean(-1))


def test_lists_of_tensors(model: Any) -> None:
    data, shift = x(4, 8), x(1, 8)
    draft, op = drafted(called("model:modulate", model.modulate, data, (shift, shift)))
    assert draft.mapping["mods_1"] == "mods[1]"
    assert torch.equal(
        op.call({"x": data, "mods_0": shift, "mods_1": shift}, {})[0], model.modulate(data, (shift, shift))
    )


def test_row_numbers_are_found_with_their_table(model: Any) -> None:
    _, op = drafted(called("model:pick", model.pick, x(10, 8), torch.tensor([3, 4, 9]), x(3, 8)))
    assert (op.indices, op.activations) == ({"ids": "table"}, ("x",))


def test_a_method_takes_the_weights_of_its_module(model: Any) -> None:
    norm, data = model.Norm(), x(4, 8)
    draft, op = drafted(called("model:Norm.forward", model.Norm.forward, norm, data))
    assert (op.name, [p.name for p in op.tensor_parameters], op.scalar_defaults) == (
        "norm",
        ["x", "weight"],
        {"eps": 1e-5},
    )
    assert draft.mapping["weight"] == "self.weight"
    assert torch.equal(op.call({"x": data, "weight": norm.weight}, {})[0], norm(data))


@pytest.mark.parametrize(
    ("name", "arguments", "named"),
    [
        ("Block.forward", lambda model: (model.Block(), x(4, 8)), "self.norm"),
        ("configured", lambda _: (x(4, 8), 2 + 1j), "config"),
        ("configured", lambda _: (2, 3), "tensor"),
    ],
)
def test_what_cannot_be_drafted_is_named(model: Any, name: str, arguments: Any, named: str) -> None:
    function: Any = model
    for word in name.split("."):
        function = getattr(function, word)
    with pytest.raises(KernwrightError, match=named):
        drafted(called(f"model:{name}", function, *arguments(model)))


def test_a_function_of_an_installed_package_is_imported() -> None:
    data = x(4, 8)
    gelu = torch.nn.functional.gelu
    call = called("torch.nn.functional:gelu", gelu, data)
    capture = Capture(header=CaptureHeader(program="p", targets=(call.call,)), calls=(call,))
    assert "import torch.nn.functional" in draft_op(capture, call.call, None, Path("c")).text
