"""Parts of a swap: what the user writes, how arguments are bound, and how results are compared."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from kernwright.core.errors import KernwrightError
from kernwright.diagnose.swap.argument_copies import copied
from kernwright.diagnose.swap.binding import NotCovered, bind
from kernwright.diagnose.swap.output_check import check_outputs
from kernwright.diagnose.swap.swap import parse_swap
from kernwright.diagnose.swap.swap_log import SwapLog, read_parts

TENSORS = {"x": False, "scale": False, "weight": True}
SCALARS = {"eps": 1e-6}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("m:f", "names no candidate"),
        ("f=ops.norm_scale_shift", "is not of the form"),
        ("torch.ops.a:b=ops.norm_scale_shift", "torch ops cannot be replaced"),
        ("m:f=ops.norm_scale_shit", "did you mean norm_scale_shift"),
        ("m:f=ops.norm_scale_shift(x=)", "is not a list of arguments"),
        ("m:f=none.py:g", "the file none.py does not exist"),
        ("none.py:f=ops.norm_scale_shift", "the file none.py does not exist"),
        ("m:f=none", "is not a folder"),
    ],
)
def test_what_cannot_be_swapped_is_refused_before_the_program_runs(text: str, said: str) -> None:
    with pytest.raises(KernwrightError, match=said):
        parse_swap(text)


def test_an_adapter_without_the_function_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def forward(x):\n    return x\n")
    with pytest.raises(KernwrightError, match="did you mean forward"):
        parse_swap(f"m:f={tmp_path}/a.py:forwards")


def bound(original: Callable[..., Any], arguments: str | None = None) -> Callable[..., Any]:
    return bind(original, lambda **given: given, tensors=TENSORS, scalars=SCALARS, arguments=arguments)[0]


def test_arguments_are_bound_by_name() -> None:
    def plain(x: Any, /, scale: Any, *rest: Any, eps: float = 1e-5, mode: str = "a", **more: Any) -> None: ...

    call = bound(plain)
    assert call(1, 2) == {"x": 1, "scale": 2, "eps": 1e-5}
    assert call(1, scale=2, eps=3.0, mode="a") == {"x": 1, "scale": 2, "eps": 3.0}
    for args, kwargs in (((1, 2, 3), {}), ((1, 2), {"mode": "b"}), ((1, 2), {"other": 1})):
        with pytest.raises(NotCovered):
            call(*args, **kwargs)
    with pytest.raises(TypeError):
        call(1)


def test_attributes_of_a_module_are_bound_by_name() -> None:
    class Layer:
        weight, eps = 5, 1e-3

        def forward(self, x: Any, scale: Any) -> None: ...

    assert bound(Layer.forward)(Layer(), 1, scale=2) == {"x": 1, "scale": 2, "weight": 5, "eps": 1e-3}


def test_scalars_that_keep_their_defaults_are_named() -> None:
    def text(original: Callable[..., Any]) -> str:
        scalars = {"eps": 1e-6, "norm_type": "layer"}
        return bind(original, lambda **given: given, tensors=TENSORS, scalars=scalars, arguments=None)[1]

    def method(self: Any, x: Any, scale: Any, norm_type: str) -> None: ...

    assert text(lambda x, scale: None).endswith("; left at the op's defaults: eps=1e-06, norm_type='layer'")
    assert text(lambda x, scale, eps: None).endswith("eps=eps; left at the op's defaults: norm_type='layer'")
    assert text(lambda x, scale, eps, norm_type: None) == "x=x, scale=scale, eps=eps, norm_type=norm_type"
    assert "eps=self.eps (1e-06 if it has none)" in text(method) and "left" not in text(method)


def test_arguments_are_expressions_of_the_parameters() -> None:
    def original(self: Any, hidden: Any, mods: Any = (1, 2)) -> None: ...

    call = bound(original, "x=hidden, scale=mods[1], eps=self.real")
    assert call(1.0, 7) == {"x": 7, "scale": 2, "eps": 1.0}


@pytest.mark.parametrize("original", [lambda y, scale: None, lambda x, scale, needed: None])
def test_names_that_do_not_match_need_arguments(original: Callable[..., Any]) -> None:
    with pytest.raises(KernwrightError, match="write the arguments"):
        bound(original)


def test_results_are_held_to_the_originals_own_error() -> None:
    torch.manual_seed(0)
    oracle = torch.randn(64, 64, dtype=torch.float64)
    own = (oracle * (1 + 1e-2)).to(torch.bfloat16)  # an original that is 1 % off
    more, far = (oracle * (1 + 1.6e-2)).to(torch.bfloat16), (oracle * 1.08).to(torch.bfloat16)
    (near,) = check_outputs(more, own, oracle, "result")
    assert not near.problem and near.own_error == pytest.approx(1e-2 * float(oracle.abs().max()), rel=0.5)
    assert check_outputs(far, own, oracle, "result")[0].problem
    assert check_outputs(more, own, None, "result")[0].problem == "", "8 ulp of bfloat16 are 6 %"
    assert "differ by over 8 ulp" in check_outputs(far, own, None, "result")[0].problem
    holed = more.clone()
    holed[3, 3] = float("nan")
    assert check_outputs(holed, own, oracle, "result")[0].problem and check_outputs(holed, own, None, "r")[0].problem
    assert check_outputs(torch.tensor([1, 2]), torch.tensor([1, 3]), None, "result")[0].problem
    assert "the result is float32[2]" in check_outputs(torch.ones(2), (torch.ones(2),), None, "result")[0].problem


def test_copies_have_their_own_memory_and_the_same_strides() -> None:
    base = torch.arange(24.0).reshape(4, 6)
    views = [base.t()[1:], base[:, ::2], torch.ones(3).expand(5, 3), torch.ones(0, 2)]
    for view, copy in zip(views, copied(views), strict=True):
        assert torch.equal(view, copy) and view.stride() == copy.stride() and view.shape == copy.shape
        assert not view.numel() or view.data_ptr() != copy.data_ptr()


def test_the_counts_of_a_forked_and_killed_process_are_kept(tmp_path: Path) -> None:
    log = SwapLog(str(tmp_path))
    slot = log.slot("t", "swapped")
    log.count(slot)
    child = os.fork()
    if child == 0:
        for _ in range(3):
            log.count(slot)
        os._exit(9)
    os.waitpid(child, 0)
    parts = read_parts(tmp_path)
    assert sorted(counters[slot] for _, counters in parts) == [1, 3]
    assert all({"slot": slot, "target": "t", "outcome": "swapped", "reason": ""} in lines for lines, _ in parts)
