"""Cases for the places of results in memory, for every op with kernels.

A result may replace an activation, and must be the same as in separate memory. It may never replace a tensor that
modulates. `print_problems` runs the cases in Triton's interpreter.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from interpreted_cases import patch_once
from token_cases import BF16, FP16, FP32
from torch import Tensor

from kernwright import ops
from kernwright.core.op import Op
from kernwright.core.registry import shipped_ops
from kernwright.ops.catalog import dispatcher

NAMES = [name for name, op in shipped_ops().items() if len(dispatcher(name).backends) > 1 and op.outputs]
USUAL, WIDE = (2, 5, 16), (1, 1, 16400)  # no Triton program holds a token of the second
TOLERANCES = {FP32: 1e-4, FP16: 0.01, BF16: 0.05}  # a result in place may come from another kernel
WIDTHS = [64, 97, 1000, 1001, 3072, 3073, 20000, 33000]  # widths that reach each kind of CUDA kernel
Tensors = Mapping[str, Tensor | None]
Call = Callable[..., Any]


def tensors_of(op: Op, shape: tuple[int, ...] = USUAL, dtype: torch.dtype = FP32) -> Tensors:
    """Return the tensors of a call, each with one number per element of x if the op supports that."""
    batches, tokens, width = shape
    rows = op.name.count("dual") + 1
    shapes = {
        "temb_scale_shift": (batches, tokens, 2 * rows * width),
        "scale_shift_table": (2 * rows, width),
        "row_scale": (batches, tokens),
        **dict.fromkeys(("weight", "bias", "weight2", "bias2"), (width,)),
    }
    if op.name.endswith("select"):
        shapes |= dict.fromkeys(("scale0", "shift0", "gate0", "scale1", "shift1", "gate1"), (batches, width))
    found: dict[str, Tensor | None] = {}
    for parameter in op.tensor_parameters:
        name = parameter.name
        drawn = torch.randn(shapes.get(name, shape)) + 2 * (name in op.activations)
        found[name] = torch.randint(0, 2, (batches, tokens)) if name == "index" else drawn.to(dtype)
    return found | {name: None for name in ("bias", "bias2") if name in found}


def results_of(call: Call, given: Tensors, out: Sequence[Tensor] | None = None, **scalars: Any) -> list[Tensor]:
    more = scalars if out is None else {**scalars, "out": out[0] if len(out) == 1 else tuple(out)}
    found = call(*given.values(), **more)
    return [found] if isinstance(found, Tensor) else list(found)


def listed(out: Any) -> list[Tensor]:
    return [] if out is None else [out] if isinstance(out, Tensor) else list(out)


def copied(given: Tensors) -> dict[str, Tensor | None]:
    return {name: None if own is None else own.clone() for name, own in given.items()}


def places(op: Op, given: Tensors, results: Sequence[Tensor]) -> Iterator[tuple[str | None, ...]]:
    """Yield an activation, or None, as the place of each result. No two results share a place, and some results have
    one."""

    def fits(name: str, result: Tensor) -> bool:
        own = given.get(name)
        return own is not None and (own.shape, own.dtype) == (result.shape, result.dtype)

    each = [[None, *(name for name in op.activations if fits(name, own))] for own in results]
    for chosen in itertools.product(*each):
        taken = [name for name in chosen if name is not None]
        if taken and len(taken) == len(set(taken)):
            yield chosen


def hold(op: Op, call: Call, given: Tensors, **scalars: Any) -> None:
    """Check that results in every permitted place equal those in separate memory."""
    wanted = results_of(call, copied(given), **scalars)
    for chosen in places(op, given, wanted):
        own = copied(given)
        outs = [
            torch.full_like(one, float("nan")) if name is None else own[name]
            for one, name in zip(wanted, chosen, strict=True)
        ]
        results_of(call, own, outs, **scalars)  # type: ignore[arg-type]
        for result, out, one in zip(op.outputs, outs, wanted, strict=True):
            limit = TOLERANCES[one.dtype]
            say = partial("{} with {} in the places of {}: {}".format, result, op.outputs, chosen)
            torch.testing.assert_close(out, one, atol=limit, rtol=limit, msg=say)


def refused(op: Op, call: Call, given: Tensors) -> Iterator[tuple[str, str, str]]:
    """For each result in the place of each modulating tensor of its shape, yield both names and the error message."""
    wanted = results_of(call, copied(given))
    for number, name in itertools.product(range(len(wanted)), given):
        own, outs = copied(given), [torch.empty_like(one) for one in wanted]
        if (place := own[name]) is None or name in op.activations or place.shape != outs[number].shape:
            continue
        outs[number] = place
        try:
            results_of(call, own, outs)
        except ValueError as error:
            yield op.outputs[number], name, str(error)
        else:
            yield op.outputs[number], name, ""
        assert torch.equal(place, given[name]), f"{name} was changed"  # type: ignore[arg-type]


def refused_in_part(op: Op, call: Call, given: Tensors) -> Iterator[tuple[str, str]]:
    """For each result with overlapping rows, and with rows that start inside those of the first activation (which has
    gaps), yield the expected message and the actual one."""
    first, wanted = op.activations[0], results_of(call, copied(given))
    x = given[first]
    assert x is not None
    for number, (result, one) in enumerate(zip(op.outputs, wanted, strict=True)):
        width, memory = one.shape[-1], torch.empty((*one.shape[:-1], 2 * one.shape[-1]), dtype=one.dtype)
        windows = memory.as_strided(one.shape, (one.shape[1] * (width - 1), width - 1, 1))
        rows = memory.view(x.dtype)[..., :width]
        for own, place, said in (
            (x, windows, f"{result} overlaps itself"),
            (rows.copy_(x), memory[..., 2 : width + 2], f"{result} overlaps {first}"),
        ):
            outs = [torch.empty_like(other) for other in wanted]
            outs[number] = place
            try:
                results_of(call, {**given, first: own}, outs)
            except ValueError as error:
                yield said, str(error)
            else:
                yield said, "nothing"


def problem(name: str, backend: str) -> str | None:
    """Return the problem of an op's public call on this machine, or None."""
    op, call = shipped_ops()[name], partial(getattr(ops, name), backend=backend)
    try:
        for shape in (USUAL, WIDE):
            hold(op, call, tensors_of(op, shape))
        for result, own, said in refused(op, call, tensors_of(op)):
            assert said.startswith(f"out: {result} overlaps {own}"), (
                f"{result} in the place of {own}: {said or 'taken'}"
            )
        for wanted, said in refused_in_part(op, call, tensors_of(op)):
            assert said.startswith(f"out: {wanted}"), f"{wanted}: {said} was said"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def print_problems() -> None:
    """Print the problem of each op as JSON. Call this in a process with Triton's interpreter."""
    patch_once()
    torch.manual_seed(0)
    print(json.dumps({name: problem(name, "triton") for name in NAMES}))
