"""Triton code: a traced op as one kernel per variant, with the Python function that launches it."""

from __future__ import annotations

from collections.abc import Iterator

from kernwright.scaffold.candidate.python_host import (
    KINDS,
    choice_of,
    dtypes_of,
    head_of,
    kind_of,
    main_of,
    numbers_of,
    tensors_of,
)
from kernwright.scaffold.candidate.traced_op import FLOAT32, DtypeOf, RowValue, TracedOp, TracedVariant

BINARY = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
UNARY = {
    "rsqrt": "tl.rsqrt({})", "sqrt": "tl.sqrt({})", "exp": "tl.exp({})", "abs": "tl.abs({})", "neg": "-({})",
    "sigmoid": "1.0 / (1.0 + tl.exp(-({0})))", "silu": "({0}) / (1.0 + tl.exp(-({0})))",
    "tanh": "_tanh({})", "relu": "tl.where(({0}) < 0.0, 0.0, {0})",
}  # fmt: skip
_HEAD = '''"""{op} in one pass: a program holds one row in registers. Written by `kernwright candidate new`; it is
correct and waits to be tuned.

Contract: {contract}. Each step rounds where the eager chain rounds. Bytes: each input is read once, each output is
written once.

The marked block has the constants that the tuner searches (space.toml). By hand:
    rows    one row per program: several for short rows (kernwright wiki show short-rows)
    steps   every tensor has steps for three leading axes: dense rows need one, and steps of 1 make loads wide
"""

import torch
import triton
import triton.language as tl

# kernwright tune: begin
ELEMENTS_PER_WARP = 1024  # elements of a row for each warp of a program
# kernwright tune: end
TYPES = {{torch.float32: tl.float32, torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}}


@triton.jit
def _tanh(x):
    # The exponential of a number that is not positive cannot overflow. Small x keep their digits: tanh(x) is x there.
    power = tl.exp(-2.0 * tl.abs(x))
    far = (1.0 - power) / (1.0 + power)
    square = x * x
    near = tl.abs(x) * (1.0 + square * (-1.0 / 3.0 + square * (2.0 / 15.0 - square * (17.0 / 315.0))))
    size = tl.where(tl.abs(x) < 0.1, near, far)
    return tl.where(x < 0.0, -size, size)
'''
_LAUNCH = '''
def _over_tokens(modulation, x):
    """View a modulation so that it broadcasts over the tokens of x: rows per batch entry, or per frame."""
    if modulation is not None and modulation.ndim == 2 and x.ndim == 3:
        return modulation[:, None, :]
    if modulation is not None and modulation.ndim == 4 and x.ndim == 3:
        batch, frames, _, width = modulation.shape
        return modulation.expand(batch, frames, x.shape[1] // frames, width).reshape(batch, x.shape[1], width)
    return modulation


def _folded(tensor, shape):
    """Return a tensor's steps over three leading axes and the last one, 0 where it broadcasts."""
    steps = list(tensor.expand(shape).stride())
    return [0] * (4 - len(steps)) + steps


def _launch(kernel, tensors, scalars, dtypes):
    shape = list(torch.broadcast_shapes(*(tensor.shape for tensor in tensors)))
    if len(shape) > 4:
        raise ValueError("at most four axes: fold the others before the launch")
    sizes = [1] * (4 - len(shape)) + shape
    rows, width = sizes[0] * sizes[1] * sizes[2], sizes[3]
    if rows == 0 or width == 0:
        return
    steps = [step for tensor in tensors for step in _folded(tensor, shape)]
    warps = max(1, min(16, triton.next_power_of_2(width) // ELEMENTS_PER_WARP))
    types = [TYPES[dtype] for dtype, _ in dtypes]
    kernel[(rows,)](
        *tensors, *scalars, *steps, sizes[1], sizes[2], width, *types,
        BLOCK=triton.next_power_of_2(width), num_warps=warps{options},
    )  # fmt: skip
'''


def triton_source(op: TracedOp) -> str:
    """Return the source of a Triton candidate."""
    parts = [_HEAD.format(op=op.name, contract=op.contract)]
    parts += [_kernel(op, variant, number) for number, variant in enumerate(op.variants)]
    parts += [KINDS, _LAUNCH.replace("{options}", ", enable_fp_fusion=False" if op.contract == "exact" else "")]
    parts.append("\n".join([*head_of(op), *choice_of(op, lambda variant, number: _call(op, variant, number))]))
    return "\n\n".join(part.strip("\n") + "\n" for part in parts)


def _kernel(op: TracedOp, variant: TracedVariant, number: int) -> str:
    tensors, dtypes = tensors_of(op, variant), dtypes_of(variant)
    steps = [f"{name}_{axis}" for name in tensors for axis in ("step0", "step1", "step2", "step")]
    types = "".join(f" {name}: tl.constexpr," for name in dtypes.values())
    numbers = "".join(f" {name}," for name in numbers_of(op))
    lines = [
        "@triton.jit", f"def _variant{number}(", f"    {', '.join(tensors)},{numbers}",
        *(f"    {', '.join(steps[at : at + 4])}," for at in range(0, len(steps), 4)),
        f"    size1, size2, width,{types} BLOCK: tl.constexpr,", "):  # fmt: skip",
        "    row = tl.program_id(0).to(tl.int64)",
        "    place0, place1, place2 = row // size2 // size1, row // size2 % size1, row % size2",
        "    column = tl.arange(0, BLOCK).to(tl.int64)", "    inside = column < width",
    ]  # fmt: skip
    lines += [f"    {_start(name)}" for name in tensors]
    lines += [f"    {line}" for line in _statements(variant, dtypes)]
    for store in variant.stores:
        place = f"{store.target}_row + column * {store.target}_step"
        lines.append(f"    tl.store({place}, v{store.value.number}.to({store.target}.dtype.element_ty), inside)")
    return "\n".join(lines)


def _start(name: str) -> str:
    return f"{name}_row = {name} + place0 * {name}_step0 + place1 * {name}_step1 + place2 * {name}_step2"


def _statements(variant: TracedVariant, dtypes: dict[DtypeOf, str]) -> Iterator[str]:
    for value in variant.values:
        own = f"v{value.number}"
        terms = [_term(each) for each in value.args]
        if value.op == "load":
            name = value.args[0]
            yield f"{own} = tl.load({name}_row + column * {name}_step, inside, 0.0).to(tl.float32)"
            continue
        if value.op == "mean":
            text = f"tl.sum(tl.where(inside, {terms[0]}, 0.0), 0) / width"
        elif value.op in BINARY:
            text = f"{terms[0]} {BINARY[value.op]} {terms[1]}"
        else:
            text = terms[0] if value.op == "round" else UNARY[value.op].format(terms[0])
        yield (
            f"{own} = {text}"
            if value.dtype == FLOAT32
            else f"{own} = ({text}).to({dtypes[value.dtype]}).to(tl.float32)"
        )


def _term(each: RowValue | float | str) -> str:
    return f"v{each.number}" if isinstance(each, RowValue) else each if isinstance(each, str) else repr(each)


def _call(op: TracedOp, variant: TracedVariant, number: int) -> Iterator[str]:
    tensors, dtypes = tensors_of(op, variant), dtypes_of(variant)
    for dtype, name in dtypes.items():
        yield f"{name} = {kind_of(dtype)}"
    for name, view in variant.views:
        if view == "over_tokens":
            yield f"{name} = _over_tokens({name}, {main_of(op)})"
        elif view == "new_axis":
            yield f"{name} = {name}[..., None]"
    yield f"tensors = [{', '.join(tensors)}]"
    yield f"_launch(_variant{number}, tensors, [{', '.join(numbers_of(op))}], [{', '.join(dtypes.values())}])"
    yield "return"
