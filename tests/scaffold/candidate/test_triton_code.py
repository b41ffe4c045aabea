"""Generated Triton code: calls in changing layouts compute what the definition does, on Triton's interpreter."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from interpreter_server import run_interpreted
from torch import Tensor

from kernwright.core.op import define
from kernwright.core.registry import shipped_ops
from kernwright.scaffold.candidate.candidate_folder import new_candidate

# Calls a candidate in each layout, and in the first one again. Prints the calls whose results are wrong.
CALLS = """
import importlib.util, json, sys
import torch
from kernwright.core.registry import shipped_ops

path, name, calls = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
spec = importlib.util.spec_from_file_location("kernel", path)
kernel = importlib.util.module_from_spec(spec)
spec.loader.exec_module(kernel)
op = shipped_ops()[name]

def made(shape, dtype, axis=-1, step=1):
    # Every `step`-th element of an axis of a larger tensor. A step of 0 repeats one element.
    axis %= max(1, len(shape))
    larger = [max(1, size * step) if k == axis else size for k, size in enumerate(shape)]
    tensor = torch.randn(larger).to(getattr(torch, dtype))
    if step == 0 or not shape:
        return tensor.expand(shape)
    return tensor[(slice(None),) * axis + (slice(None, None, step),)]

for number, call in enumerate([*calls, calls[0]]):
    torch.manual_seed(number)
    tensors = {each: made(*layout) for each, layout in call["tensors"].items()}
    wanted = op.results(tensors, call["scalars"])
    given = [tensors.get(each.name) for each in op.tensor_parameters]
    outs = {each: made(*call["out"]).fill_(float("nan")) for each in op.outputs}
    out = {"out": tuple(outs.values()) if len(outs) > 1 else list(outs.values())[0]} if outs else {}
    getattr(kernel, name)(*given, **call["scalars"], **out)
    for each, result in wanted.items():
        found = outs[each] if each in outs else tensors[each]
        if op.contract == "exact":
            same = torch.equal(found, result)
        else:
            bound = 1e-5 if result.dtype == torch.float32 else 4e-3
            same = torch.allclose(found, result, rtol=bound, atol=bound)
        if not same:
            print(number, each, json.dumps(call))
print("layouts", len(kernel._calls))
"""
GELU_ERRORS = """
import importlib.util, sys
import torch

spec = importlib.util.spec_from_file_location("kernel", sys.argv[1])
kernel = importlib.util.module_from_spec(spec)
spec.loader.exec_module(kernel)
x, scale = torch.linspace(-9.0, 9.0, 5 * 37).reshape(5, 37), torch.rand(37)
for approximate in ("none", "tanh"):
    wanted = torch.nn.functional.gelu(x.double(), approximate=approximate) * scale.double()
    y = torch.empty_like(x)
    kernel.scaled_gelu(x, scale, approximate=approximate, out=y)
    print((y - wanted).abs().max().item())
"""
F32, F16 = "float32", "float16"


def layouts(names: str, *each: list[object], out: list[object] | None = None, **scalars: object) -> dict[str, object]:
    return {"tensors": dict(zip(names.split(), each, strict=True)), "out": out or each[0], "scalars": scalars}


TOKENS = [2, 4, 8]
MODULATED = [  # one dtype, shape or step differs from the first call
    layouts("x scale shift", [TOKENS, F32], [[2, 8], F32], [[2, 8], F32]),
    layouts("x scale shift", [TOKENS, F16], [[2, 8], F32], [[2, 8], F32]),
    layouts("x scale shift", [TOKENS, F32], [[2, 8], F16], [[2, 8], F32]),
    layouts("x scale shift", [TOKENS, F16], [[2, 8], F16], [[2, 8], F16]),
    layouts("x scale shift", [[2, 3, 8], F32], [[2, 8], F32], [[2, 8], F32]),
    layouts("x scale shift", [[2, 4, 11], F32], [[2, 11], F32], [[2, 11], F32]),
    layouts("x scale shift", [[3, 4, 8], F32], [[3, 8], F32], [[3, 8], F32]),  # steps as in the first
    layouts("x scale shift", [TOKENS, F32, -1, 3], [[2, 8], F32], [[2, 8], F32], out=[TOKENS, F32]),
    layouts("x scale shift", [TOKENS, F32, 1, 2], [[2, 8], F32], [[2, 8], F32], out=[TOKENS, F32]),
    layouts("x scale shift", [TOKENS, F32], [[2, 8], F32, -1, 2], [[2, 8], F32, 0, 0]),
    layouts("x scale shift", [TOKENS, F32], [[2, 8], F32], [[2, 8], F32], out=[TOKENS, F32, -1, 2]),
    layouts("x scale shift", [TOKENS, F32], [[8], F32], [[2, 1, 8], F32]),
    layouts("x scale shift", [TOKENS, F32], [[1], F16], [[], F32]),
    layouts("x scale shift", [TOKENS, F16], [[1], F32], [[], F32]),  # only the tensor with an axis promotes
    layouts("x scale shift", [TOKENS, F16], [[], F32], [[2, 8], F16]),
    layouts("x scale shift", [TOKENS, F32], [TOKENS, F32], [[2, 8], F32]),
    layouts("x scale shift", [TOKENS, F32], [[2, 1, 1, 8], F32], [[2, 2, 1, 8], F32]),
    layouts("x scale shift", [TOKENS, F32], [[2, 2, 1, 8], F32], [TOKENS, F32]),
    layouts("x scale shift", [TOKENS, F32, 1, 2], [[2, 2, 1, 8], F32, 1, 0], [[2, 8], F32], out=[TOKENS, F32]),
    layouts("x scale shift", [[4, 8], F32], [[8], F32], [[4, 8], F32]),
    layouts("x scale shift", [[2, 2, 2, 8], F32], [[2, 1, 1, 8], F32], [[8], F32]),
    layouts("x scale shift", [[2, 0, 8], F32], [[2, 8], F32], [[2, 8], F32]),
    layouts("x scale shift", [TOKENS, F32], [[2, 8], F32], [[2, 8], F32], scale_constant=0.5),
]
NORMED = [
    layouts("x", [[5, 8], F32]),
    layouts("x", [[5, 8], F32], eps=0.5),  # a number is part of the call, not of its layout
    layouts("x weight", [[5, 8], F32], [[8], F32]),
    layouts("x weight", [[5, 8], F16], [[8], F32]),
    layouts("x weight", [[5, 8], F16], [[8], F16]),
    layouts("x", [[5, 37], F32]),
    layouts("x", [[2, 5, 8], F32, -1, 2]),
]
IN_PLACE = [
    layouts("x residual", [[5, 8], F32], [[5, 8], F32]),
    layouts("x residual weight", [[5, 8], F16], [[5, 8], F16], [[8], F16]),
    layouts("x residual", [[5, 8], F32, -1, 2], [[5, 8], F32, 0, 3]),
]
CHOSEN = [
    layouts("x scale shift", [TOKENS, F32], [[2, 8], F32], [[2, 8], F32], norm_type="layer"),
    layouts("x scale shift", [TOKENS, F32], [[2, 8], F32], [[2, 8], F32], norm_type="rms"),
]
SEQUENCES = {
    "scale_shift": MODULATED, "rms_norm": NORMED, "fused_add_rms_norm_": IN_PLACE, "norm_scale_shift": CHOSEN
}  # fmt: skip


def typed(layouts: Mapping[str, Any]) -> dict[str, SimpleNamespace]:
    """Return the inputs of a row: of each tensor its dtype, which a candidate depends on."""
    return {name: SimpleNamespace(dtype=layout[1].replace("float", "fp")) for name, layout in layouts.items()}


@pytest.mark.parametrize(("op", "calls"), SEQUENCES.items(), ids=SEQUENCES)
def test_a_call_is_right_after_calls_in_other_layouts(
    op: str, calls: list[dict[str, dict[str, object]]], tmp_path: Path
) -> None:
    rows = [SimpleNamespace(inputs=typed(call["tensors"]), scalars=call["scalars"]) for call in calls]
    new_candidate(shipped_ops()[op], rows, "triton").write(tmp_path / "own")
    said = run_interpreted(CALLS, str(tmp_path / "own" / "kernel.py"), op, json.dumps(calls)).splitlines()
    distinct = len({json.dumps([call["tensors"], call["out"], call["scalars"].get("norm_type")]) for call in calls})
    assert said == [f"layouts {distinct}"], "each layout is looked at once"


def test_tensors_of_more_than_four_axes_are_refused(tmp_path: Path) -> None:
    new_candidate(shipped_ops()["rms_norm"], [], "triton").write(tmp_path / "own")
    code = """
import sys
sys.path.insert(0, sys.argv[1])
import kernel, torch
x = torch.zeros(1, 2, 3, 4, 5)
for _ in range(2):
    try:
        kernel.rms_norm(x, out=torch.empty_like(x))
    except ValueError as error:
        print(error)
"""
    assert run_interpreted(code, str(tmp_path / "own")).count("four axes") == 2


def test_gelu_is_generated_with_erf_and_with_tanh(tmp_path: Path) -> None:
    @define(outputs=["y"], activations=["x"])
    def scaled_gelu(x: Tensor, scale: Tensor, *, approximate: str = "none") -> Tensor:
        return torch.nn.functional.gelu(x, approximate=approximate) * scale

    inputs = {"x": [[5, 37], F32], "scale": [[37], F32]}
    rows = [SimpleNamespace(inputs=typed(inputs), scalars={"approximate": each}) for each in ("none", "tanh")]
    new_candidate(scaled_gelu, rows, "triton").write(tmp_path / "own")
    errors = run_interpreted(GELU_ERRORS, str(tmp_path / "own" / "kernel.py")).split()
    assert len(errors) == 2 and max(map(float, errors)) < 5e-6, "erf and tanh differ by 5e-4"
