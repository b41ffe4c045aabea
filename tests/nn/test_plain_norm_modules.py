"""The modules against torch's own, which they can replace and whose state dicts they load."""

from __future__ import annotations

from inspect import signature
from typing import Any

import pytest
import torch
from torch import nn

from kernwright.nn import LayerNorm, RMSNorm
from kernwright.runtime.call import BadArgument

D = 48
PAIRS = {LayerNorm: nn.LayerNorm, RMSNorm: nn.RMSNorm}
pytestmark = pytest.mark.filterwarnings("ignore::kernwright.Fallback")


def drawn(module: nn.Module) -> nn.Module:
    for parameter in module.parameters():
        nn.init.normal_(parameter, 1.0, 0.2)
    return module


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("own", PAIRS)
def test_it_is_torchs_norm_and_loads_its_state(own: Any, affine: bool, dtype: torch.dtype) -> None:
    """The defaults agree too: small numbers show which eps an RMSNorm uses if none is given."""
    eager = drawn(PAIRS[own](D, elementwise_affine=affine, dtype=dtype))
    fused = own(D, elementwise_affine=affine, dtype=dtype)
    assert fused.state_dict().keys() == eager.state_dict().keys()
    fused.load_state_dict(eager.state_dict())
    assert repr(fused) == repr(eager)
    assert list(signature(fused.forward).parameters) == [*signature(eager.forward).parameters, "residual"]
    x = (torch.randn(2, 6, D) / 50).to(dtype)
    with torch.no_grad():
        assert torch.equal(fused(x), eager(x))  # on a CPU torch's own norm runs
        assert not torch.equal(fused(x), fused(x * 3))  # eps matters here


@pytest.mark.parametrize("residual_dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("own", PAIRS)
def test_behind_a_residual_it_gives_the_norm_of_the_sum_and_the_sum(own: Any, residual_dtype: torch.dtype) -> None:
    fused, eager = drawn(own(D, eps=0.1, dtype=torch.bfloat16)), PAIRS[own](D, eps=0.1, dtype=torch.float32)
    eager.load_state_dict(fused.state_dict())
    x, residual = torch.randn(2, 6, D, dtype=torch.bfloat16), torch.randn(2, 6, D, dtype=residual_dtype)
    with torch.no_grad():
        y, total = fused(x, residual)
        assert torch.equal(total, x + residual)
        assert y.dtype == torch.bfloat16
        torch.testing.assert_close(y.float(), eager(total.float()), atol=0.03, rtol=0.01)


def test_eps_and_bias_are_followed() -> None:
    x = torch.randn(2, D) / 50
    with torch.no_grad():
        assert torch.equal(RMSNorm(D, eps=0.1)(x), nn.RMSNorm(D, eps=0.1)(x))
        assert torch.equal(LayerNorm([D], 0.1, bias=False)(x), nn.LayerNorm([D], 0.1, bias=False)(x))
    assert list(LayerNorm(D, bias=False).state_dict()) == ["weight"]


@pytest.mark.parametrize("own", PAIRS)
def test_it_trains(own: Any) -> None:
    gradients = []
    x = torch.randn(3, D)
    for module in (own(D), PAIRS[own](D)):
        module(x).square().sum().backward()
        gradients.append([parameter.grad for _, parameter in sorted(module.named_parameters())])
    for found, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("own", PAIRS)
def test_it_compiles_into_one_graph(own: Any) -> None:
    fused, x = own(D), torch.randn(4, D)
    with torch.no_grad():
        assert torch.equal(torch.compile(fused, fullgraph=True, backend="aot_eager")(x), fused(x))


@pytest.mark.parametrize("own", PAIRS)
def test_unsupported_input_is_named(own: Any) -> None:
    with pytest.raises(ValueError, match=r"normalized_shape: is \[4, 48\]; the norm is over the last axis alone"):
        own([4, D])
    with pytest.raises(ValueError, match=r": is \[2, 47\], the module norms rows of 48"):
        own(D, elementwise_affine=False)(torch.zeros(2, 47))


@pytest.mark.parametrize(
    "wrong", [None, [1.0], torch.tensor(1.0), torch.zeros(3, D).int(), torch.zeros(3, D).to_sparse()]
)
@pytest.mark.parametrize("own", PAIRS)
def test_errors_use_the_modules_own_names(own: Any, wrong: Any) -> None:
    first = "input" if own is LayerNorm else "x"
    with pytest.raises(BadArgument, match=f"^{first}: (is|has)"):
        own(D)(wrong)
    with pytest.raises(BadArgument, match=f"^{first}: (is|has)"):
        own(D)(wrong, torch.zeros(3, D))
    with pytest.raises(BadArgument, match=rf"^residual: is \[2, {D}\], {first} is \[3, {D}\]"):
        own(D)(torch.zeros(3, D), torch.zeros(2, D))
