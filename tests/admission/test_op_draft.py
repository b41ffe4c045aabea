"""A drafted op computes the same as the function from which it was drafted."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from kernwright.admission.function_source import own_file
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

ODD = """
import functools
import math
import torch
from torch import nn

x = torch.ones(3)  # the name of a parameter below
scale = 7.0


def norm(x, weight): return x.float() * weight


def wrapped(function):
    @functools.wraps(function)
    def inner(*args, **kwargs): return function(*args, **kwargs)
    return inner


def replaced(function):
    def inner(*args, **kwargs): return function(*args, **kwargs)
    return inner


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.norm = nn.Parameter(torch.randn(8)), 2.0

    def forward(self, x): return norm(x.float(), self.weight) * self.norm


class Inherits(Norm):
    pass


def rest(x, *more, **options): return x * options["factor"] + len(more)


def unrecorded(x, function=torch.tanh, limit=math.inf): return function(x).clamp(max=limit)


def shadowing(torch_, out): return torch.tanh(torch_) * scale + out


def keyword(x): return {"class": x * 2}


@wrapped
def with_decorator(x): return x * 2


@replaced
def with_other_arguments(x): return x * 2


if __name__ == "__main__":
    x, weight = torch.ones(2), print("a script")
"""


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a module of a user's project in the current folder."""
    (tmp_path / "util.py").write_text(UTIL)
    (tmp_path / "model.py").write_text(MODEL)
    return imported(tmp_path / "model.py", monkeypatch)


@pytest.fixture
def odd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a script whose names and arguments are unusual."""
    (tmp_path / "odd.py").write_text(ODD)
    return imported(tmp_path / "odd.py", monkeypatch)


def imported(file: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(file.parent)
    monkeypatch.syspath_prepend(str(file.parent))
    spec = importlib.util.spec_from_file_location(file.stem, file)
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
    ("name", "given"),
    [
        ("rest", {"factor": 3.0}),
        ("unrecorded", {}),
        ("keyword", {}),
        ("with_decorator", {}),
    ],
)
def test_unusual_arguments_and_names(odd: Any, name: str, given: dict[str, float]) -> None:
    data = x(4, 8)
    draft, op = drafted(called(f"odd:{name}", getattr(odd, name), data, **given))
    expected = getattr(odd, name)(data, **given)
    assert torch.equal(op.call({"x": data}, given)[0], expected["class"] if name == "keyword" else expected)
    assert all(each.isidentifier() and each != "class" for each in op.outputs)
    assert "a script" not in draft.text and "ones(3)" not in draft.text, "x is a parameter and no name of the script"
    assert any("@wrapped" in note for note in draft.notes) == (name == "with_decorator")


def test_names_that_the_code_uses_otherwise(odd: Any) -> None:
    data, norm = x(4, 8), odd.Norm()
    draft, op = drafted(called("odd:shadowing", odd.shadowing, data, data))
    assert torch.equal(op.call({"torch_": data, "out_": data}, {})[0], odd.shadowing(data, data))
    assert draft.mapping == {"out_": "out", "y": "return"}, "the judge passes outputs as out"
    call = called("odd:Norm.forward", odd.Norm.forward, norm, data)
    capture = Capture(header=CaptureHeader(program="p", targets=(call.call,)), calls=(call,))
    with pytest.raises(KernwrightError, match="--op norm_op"):  # the function calls a norm, too
        draft_op(capture, call.call, None, Path("calls.jsonl"))
    Path("ops.py").write_text(draft_op(capture, call.call, "norm_op", Path("calls.jsonl")).text)
    (op,) = ops_from_file(Path("ops.py")).values()
    found = op.call({"x": data, "weight": norm.weight}, {"self_norm": 2.0})[0]
    assert torch.equal(found, norm(data)), "a method in one line"


@pytest.mark.parametrize(
    ("name", "named"), [("with_other_arguments", "functools.wraps"), ("Inherits.forward", "inherits")]
)
def test_a_function_whose_source_is_not_what_was_called(odd: Any, name: str, named: str) -> None:
    first, _, last = name.partition(".")
    function = getattr(getattr(odd, first), last) if last else getattr(odd, first)
    given = (odd.Inherits(), x(4, 8)) if last else (x(4, 8),)
    with pytest.raises(KernwrightError, match=named):
        drafted(called(f"odd:{name}", function, *given))


def test_files_of_a_package_may_be_links(odd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, installed = Path.cwd() / "cache", Path.cwd() / "site-packages"
    for folder in (kept, installed):
        folder.mkdir()
    (kept / "linked.py").write_text("def double(x): return x * 2\n")
    (installed / "linked.py").symlink_to(kept / "linked.py")
    monkeypatch.setattr("site.getsitepackages", lambda: [str(installed)])
    monkeypatch.syspath_prepend(str(installed))
    assert own_file(["odd"], [Path.cwd()]) is not None
    assert own_file(["linked"], []) is None


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
