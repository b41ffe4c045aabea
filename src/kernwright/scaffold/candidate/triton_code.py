"""Triton code: a traced op as one kernel per variant, with the Python function that launches it."""

from __future__ import annotations

from collections.abc import Iterator

from kernwright.scaffold.candidate.python_host import (
    dtypes_of,
    function_of,
    layouts_of,
    numbers_of,
    tensors_of,
)
from kernwright.scaffold.candidate.traced_op import FLOAT32, DtypeOf, RowValue, TracedOp, TracedVariant

BINARY = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
UNARY = {
    "rsqrt": "tl.rsqrt({})", "sqrt": "tl.sqrt({})", "exp": "tl.exp({})", "abs": "tl.abs({})", "neg": "-({})",
    "sigmoid": "1.0 / (1.0 + tl.exp(-({0})))", "silu": "({0}) / (1.0 + tl.exp(-({0})))",
    "tanh": "_tanh({})", "erf": "tl.erf({})", "relu": "tl.where(({0}) < 0.0, 0.0, {0})",
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
_PREPARED = '''
def _prepared(variant, tensors, kinds):
    """Return a function that calls a variant with tensors of these layouts."""
    views = _views(tensors)
    sizes = views[0].shape
    if 0 in sizes:
        return lambda *_: None
    # The step of an axis of one element is not needed: as 0, it does not make Triton compile another kernel.
    steps = [step if size > 1 else 0 for view in views for size, step in zip(sizes, view.stride())]
    types = [TYPES[dtype] for dtype, _ in kinds]
    block = triton.next_power_of_2(sizes[3])
    warps = max(1, min(16, block // ELEMENTS_PER_WARP))
    launch = variant[(sizes[0] * sizes[1] * sizes[2],)]

    def call(tensors, *scalars):
        given = (tensor for tensor in tensors if tensor is not None)
        launch(*given, *scalars, *steps, *sizes[1:], *types, BLOCK=block, num_warps=warps{options})

    return call
'''


def triton_source(op: TracedOp) -> str:
    """Return the source of a Triton candidate."""
    parts = [_HEAD.format(op=op.name, contract=op.contract)]
    parts += [_kernel(op, variant, number) for number, variant in enumerate(op.variants)]
    parts.append(_PREPARED.replace("{options}", ", enable_fp_fusion=False" if op.contract == "exact" else ""))
    parts += [layouts_of(op, address=False), function_of(op)]
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
