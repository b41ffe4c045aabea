"""The modules against torch's own norm and a plain modulation, including checkpoints of such a pair."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import kernwright
from kernwright.nn import (
    LayerNormScaleShift,
    LayerNormScaleShiftSelect,
    RMSNormScaleShift,
    ScaleResidualLayerNormScaleShift,
    ScaleResidualLayerNormScaleShiftSelect,
    ScaleResidualRMSNormScaleShift,
)
from kernwright.runtime.call import BadArgument

D = 48
PAIRS = {LayerNormScaleShift: nn.LayerNorm, RMSNormScaleShift: nn.RMSNorm}
RESIDUAL_PAIRS = {ScaleResidualLayerNormScaleShift: nn.LayerNorm, ScaleResidualRMSNormScaleShift: nn.RMSNorm}


class Eager(nn.Module):
    """A model without a fused module: a norm, and the modulation in its forward."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
        return self.norm(x) * (1 + scale) + shift  # type: ignore[no-any-return]


def drawn(eager: nn.Module) -> nn.Module:
    for parameter in eager.parameters():
        nn.init.normal_(parameter, 1.0, 0.2)
    return eager


@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("own", PAIRS)
def test_it_is_the_norm_and_the_modulation(own: Any, affine: bool) -> None:
    eager = drawn(Eager(PAIRS[own](D, eps=1e-6, elementwise_affine=affine)))
    fused = own(D, eps=1e-6, elementwise_affine=affine)
    assert fused.state_dict().keys() == eager.state_dict().keys()
    fused.load_state_dict(eager.state_dict())
    x, shift, scale = torch.randn(2, 6, D) + 1, torch.randn(2, 1, D), torch.randn(2, 1, D)
    with torch.no_grad():
        torch.testing.assert_close(fused(x, shift, scale), eager(x, shift, scale), atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("gate", [None, 1, 1.0, "tensor"])
@pytest.mark.parametrize("own", RESIDUAL_PAIRS)
def test_behind_a_residual(own: Any, gate: Any) -> None:
    gate = torch.randn(2, 1, D) if gate == "tensor" else gate
    eager = drawn(Eager(RESIDUAL_PAIRS[own](D, eps=1e-6, elementwise_affine=True)))
    fused = own(D, elementwise_affine=True)
    fused.load_state_dict(eager.state_dict())
    residual, x, shift, scale = (torch.randn(2, 6, D) for _ in range(4))
    with torch.no_grad():
        y, r = fused(residual, x, gate, shift, scale)
        expected = residual + (1 if gate is None else gate) * x
        torch.testing.assert_close(r, expected)
        torch.testing.assert_close(y, eager(expected, shift, scale), atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("affine", [False, True])
def test_each_token_has_the_set_that_it_picked(affine: bool) -> None:
    eager = drawn(Eager(nn.LayerNorm(D, eps=1e-6, elementwise_affine=affine)))
    plain, behind = (
        own(D, elementwise_affine=affine) for own in (LayerNormScaleShiftSelect, ScaleResidualLayerNormScaleShiftSelect)
    )
    residual, x, gate = (torch.randn(2, 6, D) for _ in range(3))
    first, second = ([torch.randn(2, D) for _ in range(3)] for _ in range(2))
    index = torch.randint(0, 2, (2, 6))
    shift, scale, wanted = (
        torch.where(index.bool()[..., None], two[:, None], one[:, None]) for one, two in zip(first, second, strict=True)
    )
    for fused in (plain, behind):
        fused.load_state_dict(eager.state_dict())
    with torch.no_grad():
        y, picked = plain(x, *first, *second, index)
        torch.testing.assert_close(y, eager(x, shift, scale), atol=2e-5, rtol=2e-5)
        assert torch.equal(picked, wanted)
        y, r, picked = behind(residual, x, gate, *first, *second, index)
        torch.testing.assert_close(r, residual + gate * x)
        torch.testing.assert_close(y, eager(r, shift, scale), atol=2e-5, rtol=2e-5)
        assert torch.equal(picked, wanted)


def test_a_gate_that_is_another_number_is_refused() -> None:
    x = torch.zeros(1, 2, D)
    with pytest.raises(ValueError, match="gate: is the number 2"):
        ScaleResidualLayerNormScaleShift(D)(x, x, 2, x, x)


def test_rows_of_another_width_are_refused() -> None:
    """Without a weight nothing else would notice the width."""
    x, row, index = torch.zeros(1, 2, D + 1), torch.zeros(1, D + 1), torch.zeros(1, 2, dtype=torch.int32)
    for own, given in (
        (RMSNormScaleShift, (x, row, row)),
        (ScaleResidualLayerNormScaleShift, (x, x, None, row, row)),
        (LayerNormScaleShiftSelect, (x, *[row] * 6, index)),
        (ScaleResidualLayerNormScaleShiftSelect, (x, x, row, *[row] * 6, index)),
    ):
        with pytest.raises(ValueError, match=rf"x: is \[1, 2, {D + 1}\], the module norms rows of {D}"):
            own(D)(*given)  # type: ignore[operator]


def test_it_trains() -> None:
    fused = LayerNormScaleShift(D, elementwise_affine=True)
    eager = Eager(nn.LayerNorm(D, eps=1e-6))
    x, shift, scale = torch.randn(2, 6, D), torch.randn(D), torch.randn(D)
    gradients = []
    for module in (fused, eager):
        module(x, shift, scale).square().sum().backward()
        gradients.append([parameter.grad for _, parameter in sorted(module.named_parameters())])
    for own, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(own, expected)


def test_it_compiles_into_one_graph() -> None:
    fused = LayerNormScaleShift(D)
    x, d = torch.randn(1, 4, D), torch.randn(D)
    with torch.no_grad():
        compiled = torch.compile(fused, fullgraph=True, backend="aot_eager")
        assert torch.equal(compiled(x, d, d), fused(x, d, d))


def test_without_a_bias_and_in_another_dtype() -> None:
    own = kernwright.nn.LayerNormScaleShift(D, elementwise_affine=True, bias=False, dtype=torch.bfloat16)
    assert [(name, value.dtype) for name, value in own.state_dict().items()] == [("norm.weight", torch.bfloat16)]
    assert "48, eps=1e-06, elementwise_affine=True" in repr(own)
    assert not RMSNormScaleShift(D).state_dict()


def test_it_is_made_on_no_device_and_filled_later() -> None:
    own = LayerNormScaleShift(D, elementwise_affine=True, device="meta").to_empty(device="cpu")
    for parameter in own.parameters():
        nn.init.constant_(parameter, 7.0)
    own.norm.reset_parameters()
    expected = LayerNormScaleShift(D, elementwise_affine=True).state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in own.state_dict().items())


WRONG_ROW = torch.zeros(2, D - 1)
ROW_WORDS = rf"is \[2, {D - 1}\], which does not broadcast over x, \[2, 3, {D}\]"
SET_WORDS = rf"is \[2, {D - 1}\], it must be \[2, {D}\], a row per batch entry of x"


def arguments_of(own: type[nn.Module]) -> dict[str, Any]:
    x, row = torch.zeros(2, 3, D), torch.zeros(2, D)
    whole = {"x": x, "residual": x, "index": torch.zeros(2, 3, dtype=torch.int32)}
    return {name: whole.get(name, row) for name in inspect.signature(own.forward).parameters if name != "self"}


@pytest.mark.parametrize(
    ("own", "name", "words"),
    [
        *((own, name, ROW_WORDS) for own in PAIRS for name in ("scale", "shift")),
        *((own, name, ROW_WORDS) for own in RESIDUAL_PAIRS for name in ("scale", "shift", "gate")),
        *((LayerNormScaleShiftSelect, name, SET_WORDS) for name in ("shift0", "scale0", "gate0", "shift1", "scale1")),
        *((ScaleResidualLayerNormScaleShiftSelect, name, SET_WORDS) for name in ("shift0", "scale1", "gate1")),
        (ScaleResidualLayerNormScaleShiftSelect, "gate", ROW_WORDS),
    ],
)
def test_errors_use_the_modules_own_names(own: Any, name: str, words: str) -> None:
    """Shift comes before scale in the modules, but after it in the ops."""
    for given, said in ((WRONG_ROW, words), ("row", "is a str, not a tensor")):
        with pytest.raises(BadArgument, match=f"^{name}: {said}"):
            own(D)(*(arguments_of(own) | {name: given}).values())


@pytest.mark.parametrize("own", [*PAIRS, *RESIDUAL_PAIRS, LayerNormScaleShiftSelect])
def test_a_weight_on_another_device_is_named_as_in_the_state_dict(own: Any) -> None:
    with pytest.raises(BadArgument, match=r"^norm.weight: is on meta, x is on cpu"), torch.no_grad():
        own(D, elementwise_affine=True, device="meta")(**arguments_of(own))


@pytest.mark.parametrize("wrong", [None, [1.0], torch.tensor(1.0), torch.zeros(2, 3, D).to_sparse()])
@pytest.mark.parametrize("own", [*PAIRS, *RESIDUAL_PAIRS, LayerNormScaleShiftSelect])
def test_x_is_named_whatever_it_is(own: Any, wrong: Any) -> None:
    with pytest.raises(BadArgument, match=r"^x: "):
        own(D)(**arguments_of(own) | {"x": wrong})
