"""The C++ kernels for a CPU: every case by the judge's rule, and errors that name the argument, also those raised in
C++."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import folded_cases
import pytest
import torch
from norm_modulation_cases import BF16, CASES, FP16, FP32, verify

from kernwright import ops
from kernwright.core.runtime_interface import BUILDS_VARIABLE
from kernwright.ops.norm_modulation import family
from kernwright.runtime.library import CACHE_VARIABLE
from kernwright.runtime.target import compiler

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler")


@pytest.mark.parametrize("name", CASES)
def test_every_case_is_close(name: str) -> None:
    case = CASES[name]
    verify(case, lambda *a, **k: getattr(ops, case.op)(*a, **k, backend="cpu"))


@pytest.mark.parametrize("name", folded_cases.of("norm_scale_shift", "residual_norm_scale_shift"))
def test_more_axes_are_close(name: str) -> None:
    case = folded_cases.CASES[name]
    folded_cases.verify(case, lambda *a, **k: getattr(ops, case.op)(*a, **k, backend="cpu"))


@pytest.mark.parametrize("width", [1024, 3072, 16384, 65536])
@pytest.mark.parametrize("norm_type", ["rms", "layer"])
def test_a_row_of_one_magnitude_is_close_too(width: int, norm_type: str) -> None:
    """In such a row all roundings of a sum go in the same direction."""
    torch.manual_seed(0)
    x, none = torch.randint(0, 2, (1, 2, width)).mul(2.2).sub(1.1), torch.zeros(width)
    own = ops.norm_scale_shift(x, none, none, norm_type=norm_type, backend="cpu")
    wide = x.double()
    if norm_type == "layer":
        wide = wide - wide.mean(-1, keepdim=True)
    expected = wide / (wide.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    assert ((own - expected) / expected).abs().max() <= 2.5 * torch.finfo(FP32).eps


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_result_does_not_depend_on_the_threads(threads: int) -> None:
    case = CASES["residual many tokens"]
    launch = getattr(family.CPU_LIBRARY.load(family.CPU), case.op)
    given = {**case.tensors(), "weight": None, "bias": None}
    names = ("x", "residual", "scale", "shift", "gate", "weight", "bias")

    def run(count: int) -> list[torch.Tensor]:
        outs = [torch.full_like(given["x"], float("nan")) for _ in range(2)]
        assert launch(*(given[name] for name in names), "layer", 1e-6, *outs, count)
        return outs

    for own, alone in zip(run(threads), run(1), strict=True):
        assert torch.equal(own, alone)


@pytest.mark.parametrize("dtype", [BF16, FP16])
def test_numbers_at_the_ends_of_a_dtype_are_rounded_as_torch_rounds(dtype: torch.dtype) -> None:
    """The residual is rounded and returned: subnormal numbers, the largest numbers, ties, infinities and NaN."""
    every = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(dtype).reshape(1, 16, 4096)
    zero = torch.zeros_like(every)
    half = torch.full((1,), 0.4999, dtype=FP32)
    _, summed = ops.residual_norm_scale_shift(every, zero, half, half, gate=half, backend="cpu")
    expected = (every.float() * half).to(dtype)
    assert torch.equal(torch.nan_to_num(summed), torch.nan_to_num(expected))
    assert torch.equal(summed.isnan(), expected.isnan())


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_nonfinite_element_affects_its_own_token_alone(bad: float) -> None:
    x = torch.randn(1, 4, 64)
    x[0, 2, 5] = bad
    one = torch.ones(64)
    y = ops.norm_scale_shift(x, one, one, backend="cpu")
    assert not y[0, 2].isfinite().any() or y[0, 2].isnan().any()
    assert y[0, [0, 1, 3]].isfinite().all()


X = torch.zeros(2, 6, 8)
D = torch.zeros(8)
FOUR = {"x": X.view(2, 3, 2, 8), "residual": X.view(2, 3, 2, 8)}
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "channels": ({"scale": torch.zeros(7)}, "scale"),
    "batches": ({"shift": torch.zeros(3, 8)}, "shift"),
    "tokens": ({"gate": torch.zeros(2, 5, 8)}, "gate"),
    "frames": ({"scale": torch.zeros(2, 4, 1, 8)}, "scale: 6 tokens do not divide into 4 frames"),
    "behind frames": ({"scale": torch.zeros(2, 3, 2, 8)}, "scale"),
    "dimensions": ({"scale": torch.zeros(1, 1, 1, 1, 8)}, "scale"),
    "an axis": ({**FOUR, "scale": torch.zeros(2, 2, 1, 8)}, "scale"),
    "an axis of few": ({**FOUR, "gate": torch.zeros(3, 8)}, "gate"),
    "more dimensions": ({**FOUR, "shift": torch.zeros(1, 2, 3, 2, 8)}, "shift"),
    "channels of four axes": ({**FOUR, "shift": torch.zeros(2, 3, 1, 7)}, "shift"),
    "residual of four axes": ({**FOUR, "residual": torch.zeros(2, 3, 1, 8)}, "residual"),
    "out of four axes": ({**FOUR, "out": (torch.zeros(2, 3, 2, 8), torch.zeros(2, 3, 1, 8))}, "out"),
    "weight": ({"weight": torch.zeros(9)}, "weight"),
    "weight's dimensions": ({"weight": torch.zeros(1, 8)}, "weight"),
    "bias alone": ({"bias": D}, "bias"),
    "bias of rms": ({"weight": D, "bias": D, "norm_type": "rms"}, "bias"),
    "residual": ({"residual": torch.zeros(2, 6, 9)}, "residual"),
    "dtype": ({"shift": torch.zeros(8, dtype=torch.int32)}, "shift"),
    "norm": ({"norm_type": "batch"}, "norm_type"),
    "out": ({"out": (torch.zeros(2, 6, 9), torch.zeros(2, 6, 8))}, "out"),
    "out's dtype": ({"out": (torch.zeros(2, 6, 8), torch.zeros(2, 6, 8, dtype=FP16))}, "out"),
}


@pytest.mark.parametrize("backend", ["cpu", "torch"])
@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_argument_is_named(what: str, backend: str) -> None:
    changed, named = WRONG[what]
    given = {"x": X, "residual": X, "scale": D, "shift": D, "gate": D} | changed
    with pytest.raises(ValueError, match=f"^{named}"):
        ops.residual_norm_scale_shift(**given, backend=backend)


@pytest.mark.parametrize("what", WRONG)
def test_the_foreign_function_names_it_too(what: str) -> None:
    """The fast path has no checks in Python."""
    launch = family.cpu_launch("residual_norm_scale_shift")
    changed, named = WRONG[what]
    given = {"x": X, "residual": X, "scale": D, "shift": D, "gate": D, "weight": None, "bias": None} | changed
    outs = given.pop("out", (torch.zeros_like(given["x"]), torch.zeros_like(given["x"])))
    norm_type = given.pop("norm_type", "layer")
    with pytest.raises(ValueError, match=f"^{named}"):
        launch(*given.values(), norm_type, 1e-6, *outs)


def test_unsupported_calls_are_refused_and_not_run() -> None:
    launch = family.cpu_launch("norm_scale_shift")

    def takes(x: torch.Tensor, scale: torch.Tensor = D) -> bool:
        return launch(x, scale, D, None, None, "layer", 1e-6, torch.zeros_like(X))

    assert takes(X)
    assert not takes(X.double())
    assert not takes(torch.zeros(2, 6, 16)[..., ::2])
    assert not takes(X, torch.zeros(16)[::2])
    assert not takes(X[0, 0])
    assert not takes(X[(None,) * 14])


def test_alternating_dtypes_and_devices_reach_the_right_kernels() -> None:
    """The fast path goes to the last call's kernel. That kernel refuses unsuitable calls, which then take the slow
    path."""
    for dtype in (FP32, BF16, torch.float64, FP16, FP32, torch.float64):
        x, d = torch.randn(1, 4, 16).to(dtype), torch.randn(16).to(dtype)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            y = ops.norm_scale_shift(x, d, d)
            on_meta = ops.norm_scale_shift(x.to("meta"), d.to("meta"), d.to("meta"))
        assert y.dtype == dtype and on_meta.device.type == "meta"
        torch.testing.assert_close(y, ops.norm_scale_shift(x, d, d, backend="torch"), atol=0.03, rtol=0.03)


def test_the_second_call_takes_the_fast_path_and_agrees() -> None:
    case = CASES["frame modulation"]
    tensors = case.tensors()
    arguments = [tensors[name] for name in ("x", "scale", "shift")]
    first, second = (ops.norm_scale_shift(*arguments) for _ in range(2))
    out = torch.empty_like(first)
    assert ops.norm_scale_shift(*arguments, out=out) is out
    assert torch.equal(first, second) and torch.equal(first, out)
    with pytest.warns(UserWarning, match="x has a last axis with gaps"):
        apart = torch.randn(1, 2, 16)[..., ::2]
        ops.norm_scale_shift(apart, D, D)


def test_an_unsupported_float_runs_the_reference_also_after_the_fast_path() -> None:
    x, row = torch.randn(2, 3, 64), torch.randn(64)
    narrow = row.abs().to(torch.float8_e4m3fn)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fresh = ops.norm_scale_shift(x, row, row, narrow, backend="torch")
        ops.norm_scale_shift(x, row, row, row)
        assert torch.equal(ops.norm_scale_shift(x, row, row, narrow), fresh)
    with pytest.raises(ValueError, match=r"^weight: is torch.int32, not floating point"):
        ops.norm_scale_shift(x, row, row, row.int())


def test_windows_over_one_memory_are_normed_like_any_tokens() -> None:
    """torch's empty_like would give them gaps in the last axis, which no kernel writes."""
    windows, row = torch.randn(127).unfold(0, 64, 1)[:8], torch.randn(64)
    expected = ops.norm_scale_shift(windows, row, row, backend="torch")
    for _ in range(2):  # the second call takes the fast path if it can
        torch.testing.assert_close(ops.norm_scale_shift(windows, row, row, backend="cpu"), expected)


UNBUILT = """
import warnings, torch, kernwright
from kernwright import ops
x, row = torch.randn(2, 3, 8), torch.randn(8)
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    for size in (2, 2, 1):
        ops.norm_scale_shift(x[:size], row, row)
print(len(seen), "norm_modulation could not be built for cpu" in str(seen[0].message))
print(kernwright.explain(ops.norm_scale_shift, x, row, row).chosen)
for wish in (kernwright.preferring("cpu"), kernwright.preferring(strict=True)):
    try:
        with wish:
            ops.norm_scale_shift(x, row, row)
    except kernwright.core.errors.EnvironmentProblem as problem:
        print(problem.remedy)
"""


def test_a_compiler_that_builds_nothing_leaves_the_reference(tmp_path: Path) -> None:
    surroundings = {**os.environ, "CXX": "/bin/false", CACHE_VARIABLE: str(tmp_path), BUILDS_VARIABLE: ""}
    done = subprocess.run([sys.executable, "-c", UNBUILT], env=surroundings, capture_output=True, text=True, check=True)
    remedy = "use a compiler for C++17, and CUDA 12 or newer for a GPU"
    assert done.stdout.splitlines() == ["1 True", "torch (exact)", remedy, remedy]
