"""The CUDA kernels of ERNIE's norms, run on a CPU thread by thread: every case by the judge's rule. The gate uses the
kernels of `modulation` and is emulated with them. Tokens are bfloat16 here, whatever the case says: a GPU runs the
others."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import empty_cases
import folded_cases
import place_cases
import pytest
import torch
from emulation import built
from ernie_cases import BF16, CUDA_CASES, verify
from place_cases import WIDTHS, listed, tensors_of
from token_cases import arguments

from kernwright import ops
from kernwright.core.registry import shipped_ops
from kernwright.ops.catalog import dispatcher
from kernwright.ops.ernie.family import NORMS, SOURCES
from kernwright.runtime.target import compiler

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler")
CASES = {name: replace(case, dtype=BF16) for name, case in CUDA_CASES.items() if case.kind != "gate"}


FOLDED = folded_cases.of("ernie_norm_modulate", "ernie_residual_norm_modulate")


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the foreign function of each norm."""
    kinds = {
        op.name: {"KERNWRIGHT_TYPE": "kBFloat16", "KERNWRIGHT_RESIDUAL": str(number), "KERNWRIGHT_OP": op.name}
        for number, op in enumerate(NORMS)
    }
    found = built("ernie_emulation.cc", SOURCES, kinds, tmp_path_factory.mktemp("emulated"))
    return SimpleNamespace(**{name: module.run for name, module in found.items()})


def runner(op: str, emulated: Any) -> Any:
    def call(*tensors: torch.Tensor, eps: float, out: Any = None) -> Any:
        outs = listed(out) or [torch.full_like(tensors[0], float("nan")) for _ in range(1 + ("residual" in op))]
        assert getattr(emulated, op)(*tensors, eps, *outs)
        return outs[0] if len(outs) == 1 else tuple(outs)

    return call


@pytest.mark.parametrize("name", CASES)
def test_every_case_is_close(name: str, emulated: Any) -> None:
    verify(CASES[name], runner(CASES[name].op, emulated))


@pytest.mark.parametrize("name", FOLDED)
def test_more_axes_are_close(name: str, emulated: Any) -> None:
    folded_cases.verify(FOLDED[name], runner(FOLDED[name].op, emulated))


@pytest.mark.parametrize("op", ["ernie_norm_modulate", "ernie_residual_norm_modulate"])
def test_empty_calls_are_accepted_without_a_launch(op: str, emulated: Any) -> None:
    for case in empty_cases.CASES.values():
        if case.op == op:
            empty_cases.verify(case, runner(op, emulated))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("op", ["ernie_norm_modulate", "ernie_residual_norm_modulate"])
def test_results_lie_in_an_inputs_place(op: str, width: int, emulated: Any) -> None:
    given = tensors_of(shipped_ops()[op], (1, 3, width), BF16)
    place_cases.hold(shipped_ops()[op], runner(op, emulated), given, eps=1e-6)


X, D = torch.zeros(2, 6, 64, dtype=BF16), torch.zeros(64)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ((X, X[:, :5], D, D, D, D), "update: has 5 where residual has 6 tokens"),
        ((X, X, D[:63], D, D, D), "gate: has 63 where residual has 64 channels"),
        ((X, X, D, D[:63], D, D), "weight: has 63 where residual has 64 channels"),
        ((X, X, D, D, torch.zeros(3, 1, 64), D), "scale: has 3 where residual has 2 batch entries"),
    ],
)
def test_a_wrong_argument_is_named(given: tuple[Any, ...], named: str, emulated: Any) -> None:
    with pytest.raises(ValueError, match=f"^{named}"):
        emulated.ernie_residual_norm_modulate(*given, 1e-6, X, X)


def test_a_valid_but_unsupported_call_is_refused(emulated: Any) -> None:
    for given in ((X.float(), X, D, D), (X, X[:, :1], D, D), (X, X, X[None], D), (X, X, D, D[None]), (X, X, D, D[:1])):
        own = torch.zeros_like(given[0])
        assert not emulated.ernie_residual_norm_modulate(*given, D, D, 1e-6, own, own)


@pytest.mark.filterwarnings("ignore::kernwright.Fallback")
@pytest.mark.parametrize("name", ["norm width 4096", "residual chunk modulation"])
def test_a_call_like_the_last_goes_straight_to_the_kernel(
    name: str, emulated: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, answers = CASES[name], []

    def launch(*given: Any) -> bool:
        answers.append(getattr(emulated, case.op)(*given))
        return bool(answers[-1])

    monkeypatch.setattr(dispatcher(case.op), "_latest", ("cuda", launch, (None, "close")))
    own = getattr(ops, case.op)
    verify(case, own)
    assert answers == [True]
    given = arguments(case)
    assert given[0] is not None
    own(given[0].double(), *given[1:], **case.scalars)  # refused, so the dispatcher runs it
    own(*given, **case.scalars, backend="torch")
    assert answers == [True, False]  # a call for another backend never asks
