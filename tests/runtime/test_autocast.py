"""Under torch.autocast an op keeps its promised dtypes, whichever implementation runs and however it is called."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import kernwright
from kernwright.core.op import define
from kernwright.core.registry import shipped_ops
from kernwright.runtime.choice.reference import reference_function
from kernwright.runtime.dispatch import Dispatcher
from kernwright.runtime.implementation import Implementation
from kernwright.runtime.public_call.fast_path import fast_path
from kernwright.runtime.public_call.slow_path import SlowPath


@define(outputs=["y"], activations=["x"])
def product(x: Tensor, w: Tensor) -> Tensor:
    return x @ w


_product = fast_path(
    SlowPath(Dispatcher(product, [Implementation(backend="triton", contract="close", load=lambda: product.reference)]))
)


@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize(
    "way",
    [
        lambda x, w: _product((x, w), None, None, None),
        lambda x, w: _product((x, w), None, None, None if x.requires_grad else torch.empty_like(x)),
        Dispatcher(product),
        lambda x, w: Dispatcher(product)(w=w, x=x),
        lambda x, w: torch.vmap(lambda own: _product((own, w), None, None, None))(x[None])[0],
        torch.ops.kernwright.product,
    ],
)
@pytest.mark.parametrize("compiles", [False, True])
def test_autocast_does_not_reach_the_reference(way: Callable[..., Any], compiles: bool, trains: bool) -> None:
    """Kernels ignore autocast. If it reached the reference, only the reference would return bfloat16 instead of
    float32."""
    x, w = (torch.randn(4, 4, requires_grad=trains) for _ in range(2))
    wishes = (None, None) if way is torch.ops.kernwright.product else ()
    torch._dynamo.reset()
    own = torch.compile(way, backend="aot_eager", fullgraph=True) if compiles else way
    with kernwright.preferring("torch"), torch.autocast("cpu", dtype=torch.bfloat16):
        assert (x @ w).dtype == torch.bfloat16
        found = own(x, w, *wishes)
    assert torch.equal(found, x @ w)
    if trains:
        found.sum().backward()
        # torch traces the gradient of compiled code under autocast itself.
        torch.testing.assert_close(x.grad, w.sum(1).expand(4, 4), atol=0.1 if compiles else 1e-5, rtol=0.0)


@pytest.mark.parametrize(
    "name", ["norm_scale_shift", "residual_norm_scale_shift", "layer_norm", "rms_norm", "add_norm"]
)
def test_norms_return_the_promised_dtypes_under_autocast(name: str) -> None:
    """On a GPU, torch's own layer_norm returns float32 under autocast. The GPU's behaviour can be checked without a
    GPU."""
    with FakeTensorMode():
        x = torch.empty(2, 4, 64, dtype=torch.bfloat16, device="cuda")
        row = torch.empty(64, dtype=torch.bfloat16, device="cuda")
        given = {"residual_norm_scale_shift": (x, x, row, row, row), "add_norm": (x, x, row), "rms_norm": (x, row)}
        with autocast_on_a_gpu():
            assert torch.nn.functional.layer_norm(x, (64,)).dtype == torch.float32
            found = reference_function(shipped_ops()[name])(*given.get(name, (x, row, row)))
    assert {own.dtype for own in (found if isinstance(found, tuple) else (found,))} == {torch.bfloat16}


@contextmanager
def autocast_on_a_gpu() -> Iterator[None]:
    """Set the state of torch.autocast, which itself refuses to do so without a GPU."""
    torch.set_autocast_enabled("cuda", True)
    try:
        yield
    finally:
        torch.set_autocast_enabled("cuda", False)
