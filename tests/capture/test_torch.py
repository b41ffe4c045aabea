"""Programs with torch: metadata of tensors, torch's ops, and compilers that trace through a wrapper."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from kernwright.capture.capture import CapturedScalar, CapturedTensor

Capturing = Callable[..., Any]

SCRIPT = """
import torch
import library
from library import scale
from kernwright.ops.norm_modulation.definition import norm_scale_shift

x = torch.full((3, 4), 123456.5)
scale(x); scale(x.t()); scale([x[:, :2], x.bfloat16()], 3); scale(torch.nn.Parameter(x))
scale(torch.empty(0)); scale(torch.tensor(123456.5))
scale(torch.sparse_coo_tensor([[0], [1]], [123456.5], (2, 3)))
torch.nn.functional.gelu(x)
torch.nn.LayerNorm(4)(x)

@torch.library.custom_op("own::twice", mutates_args=())
def twice(x: torch.Tensor, k: float = 2.0) -> torch.Tensor:
    return x * k

@twice.register_fake
def _(x, k=2.0):
    return torch.empty_like(x)

twice(x)
torch.ops.own.twice(x, 2.0)
torch.ops.own.twice.default(x, k=2.0)
table = {torch.ops.own.twice.default: 1}
print(table[torch.ops.own.twice.default], hash(torch.ops.own.twice) == hash(torch.ops.own.twice._op))

before = norm_scale_shift.digest
norm_scale_shift.reference(torch.ones(1, 3, 4), torch.ones(1, 4), torch.ones(1, 4), eps=1e-5)
print(before)

def model(x):
    return torch.ops.own.twice(scale(x)) + torch.nn.functional.layer_norm(x, (4,)) + torch.nn.functional.gelu(x)

compiled = torch.compile(model, backend="aot_eager", fullgraph=True, dynamic=True)
for rows in (3, 5, 7):
    y = torch.ones(rows, 4)
    torch.testing.assert_close(compiled(y), model(y))
"""
OP = "kernwright.ops.norm_modulation.definition:norm_scale_shift.reference"


def test_a_program_with_torch(capture: Capturing) -> None:
    from kernwright.core.registry import shipped_ops

    run = capture(
        SCRIPT, "library:scale", "torch.nn.functional:gelu", "torch.nn.functional:layer_norm", "own::twice", OP
    )
    assert run.done.returncode == 0, run.done.stderr
    assert run.done.stdout == f"1 True\n{shipped_ops()['norm_scale_shift'].digest}\n"
    assert "123456" not in run.file.read_text()
    assert run.capture.header.torch

    def tensors(target: str) -> dict[tuple[Any, ...], int]:
        found = {}
        for call in run.capture.of(target):
            kinds = [v for name, v in call.values().items() if isinstance(v, CapturedTensor) and name[:6] != "return"]
            found[tuple((t.shape, t.dtype, t.strides, t.requires_grad) for t in kinds)] = call.count
        return found

    plain = ((3, 4), "float32", (4, 1), False)
    rows = {((n, 4), "float32", (4, 1), False): 1 for n in (3, 5, 7)}
    scaled = tensors("library:scale")
    assert scaled[(plain,)] == 1 + 1  # the call in the first line, and the model's own call outside the compiler
    assert scaled[((4, 3), "float32", (1, 4), False),] == 1
    assert scaled[((3, 4), "float32", (4, 1), True),] == 1
    assert scaled[((3, 2), "float32", (4, 1), False), ((3, 4), "bfloat16", (4, 1), False)] == 1
    assert scaled[((0,), "float32", (1,), False),] == scaled[((), "float32", (), False),] == 1
    assert scaled[((2, 3), "float32", None, False),] == 1

    # A torch op is also recorded where compiled code calls it: each size once there and once outside.
    seen = tensors("torch.ops.own:twice")
    assert seen[(plain,)] == 3 + 2
    assert {key[0]: count for key, count in seen.items()} == {k: 5 if k[0][0] == 3 else 2 for k in rows}
    assert all([a.name for a in call.arguments] == ["x", "k"] for call in run.capture.of("torch.ops.own:twice"))

    (reference,) = run.capture.of(OP)
    assert reference.values()["eps"].value == 1e-5  # type: ignore[union-attr]
    assert reference.values()["norm_type"].value == "layer"  # type: ignore[union-attr]
    assert reference.returns == CapturedTensor(
        shape=(1, 3, 4), dtype="float32", strides=(12, 4, 1), device="cpu", requires_grad=False
    )
    names = {tuple(a.name for a in call.arguments) for call in run.capture.of("torch.nn.functional:layer_norm")}
    assert names == {("input", "normalized_shape", "weight", "bias", "eps")}
    assert [a.name for a in run.capture.of("torch.nn.functional:gelu")[0].arguments] == ["0"]


FUNCTIONS = """
import torch

@torch.jit.script
def scripted(x: torch.Tensor) -> torch.Tensor:
    return x * 2

@torch.library.custom_op("own::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2

def cast(x, dtype=torch.bfloat16, form=torch.contiguous_format, others=()):
    return 1

def scale(x):
    return x
"""
CALLS = """
import torch
from functions import cast, doubled, scale, scripted

print(scripted(torch.ones(2)).sum().item())
doubled(torch.ones(2)); torch.ops.own.doubled(torch.ones(2))
print(type(doubled).__name__)

x = torch.ones(2, 3, 4, 5)
cast(x); cast(x, torch.bfloat16); cast(x, dtype=torch.float64)
cast(x, form=torch.channels_last, others=[torch.strided, torch.int8])

y = torch.ones(4096, dtype=torch.bfloat16)
for begins in (0, 3, 128, 131, 259): scale(y[begins : begins + 8])
scale(torch.ones(3, dtype=torch.complex128)[1:]); scale(torch.eye(3).to_sparse())
"""


@pytest.fixture(scope="module")
def several(capture_in: Callable[..., Capturing], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Capture several functions in one program, because the import of torch takes seconds."""
    capture = capture_in(tmp_path_factory.mktemp("several"), dict(os.environ))
    targets = [f"functions:{name}" for name in ("scripted", "doubled", "cast", "scale")]
    run = capture(CALLS, *targets, prepare={"functions.py": FUNCTIONS})
    assert run.done.returncode == 0, run.done.stderr
    assert run.done.stdout == "4.0\nCustomOpDef\n"
    return run


def test_a_scripted_function_is_told_apart(several: Any) -> None:
    assert "functions:scripted: is compiled by torch.jit: name the function that calls it" in several.done.stderr
    assert several.capture.of("functions:scripted") == ()


def test_a_custom_op_is_recorded_under_its_python_name_too(several: Any) -> None:
    calls = several.capture.of("functions:doubled")
    assert [call.count for call in calls] == [1]  # torch.ops.own.doubled bypasses the Python name


def test_constants_of_torch_are_kept_by_name(several: Any) -> None:
    """A dtype determines the result as much as a number does: calls with different dtypes are two signatures."""
    found = sorted(
        ([f"{v.type} {v.value}" for v in call.values().values() if isinstance(v, CapturedScalar)], call.count)
        for call in several.capture.of("functions:cast")
    )
    plain = "memory_format contiguous_format"
    assert found == [
        (["dtype bfloat16", "memory_format channels_last", "layout strided", "dtype int8"], 1),
        (["dtype bfloat16", plain], 2),
        (["dtype float64", plain], 1),
    ]


def test_the_offset_of_a_view_is_kept_if_it_changes_the_alignment(several: Any) -> None:
    tensors = [(call.values()["x"], call.count) for call in several.capture.of("functions:scale")]
    found = sorted((t.dtype, t.offset, count) for t, count in tensors if isinstance(t, CapturedTensor))
    assert found == [("bfloat16", 0, 2), ("bfloat16", 3, 3), ("complex128", 1, 1), ("float32", 0, 1)]
