"""Triton code: a traced op as one kernel per variant, with the Python function that launches it."""

from __future__ import annotations

from collections.abc import Iterator

from kernwright.scaffold.candidate.traced_op import DtypeOf, RowValue, TracedOp, TracedVariant

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
_TAIL = '''
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


def _promoted(*kinds):
    """Return the dtype of a result. A number without an axis does not promote tensors that have axes."""
    with_axes = [dtype for dtype, is_number in kinds if not is_number] or [dtype for dtype, _ in kinds]
    result = with_axes[0]
    for dtype in with_axes[1:]:
        result = torch.promote_types(result, dtype)
    return result, all(is_number for _, is_number in kinds)


def _kind(tensor):
    return tensor.dtype, tensor.ndim == 0


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
    parts.append(_TAIL.replace("{options}", ", enable_fp_fusion=False" if op.contract == "exact" else ""))
    parts.append(_function(op))
    return "\n\n".join(part.strip("\n") + "\n" for part in parts)


def _tensors(op: TracedOp, variant: TracedVariant) -> list[str]:
    given = {name for name, optional in op.tensors if not optional or name in variant.given}
    return [name for name, _ in op.tensors if name in given] + list(op.outputs)


def _numbers(op: TracedOp) -> list[str]:
    return [name for name, value in op.scalars if not isinstance(value, bool | str)]


def _dtypes(variant: TracedVariant) -> dict[DtypeOf, str]:
    """Return the dtypes that values are rounded to, each with its name in the kernel."""
    found: dict[DtypeOf, str] = {}
    for value in variant.values:
        if value.op != "load":
            found.setdefault(value.dtype, f"T{len(found)}")
    return found


def _kernel(op: TracedOp, variant: TracedVariant, number: int) -> str:
    tensors, dtypes = _tensors(op, variant), _dtypes(variant)
    steps = [f"{name}_{axis}" for name in tensors for axis in ("step0", "step1", "step2", "step")]
    types = "".join(f" {name}: tl.constexpr," for name in dtypes.values())
    numbers = "".join(f" {name}," for name in _numbers(op))
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
        yield f"{own} = ({text}).to({dtypes[value.dtype]}).to(tl.float32)"


def _term(each: RowValue | float | str) -> str:
    return f"v{each.number}" if isinstance(each, RowValue) else each if isinstance(each, str) else repr(each)


def _function(op: TracedOp) -> str:
    tensors = [f"{name}=None" if optional else name for name, optional in op.tensors]
    scalars = [f"{name}={value!r}" for name, value in op.scalars]
    out = ["out"] if op.outputs else []
    keywords = ["*", *scalars, *out] if scalars or out else []
    lines = [f"def {op.name}({', '.join([*tensors, *keywords])}):"]
    if op.outputs:
        lines.append(f"    {', '.join(op.outputs)}{',' if len(op.outputs) > 1 else ''} = out")
    optional = [name for name, may_lack in op.tensors if may_lack]
    main = op.inplace[0] if op.inplace else op.outputs[0]
    for number, variant in enumerate(op.variants):
        tests = [f"{name} is not None" if name in variant.given else f"{name} is None" for name in optional]
        tests += [f"{name} == {value!r}" for name, value in variant.choices]
        lines.append(f"    if {' and '.join(tests) or 'True'}:")
        lines += [f"        {line}" for line in _call(op, variant, number, main)]
        lines.append("        return")
    lines.append('    raise ValueError("no variant for these arguments: generate it with kernwright candidate new")')
    return "\n".join(lines)


def _call(op: TracedOp, variant: TracedVariant, number: int, main: str) -> Iterator[str]:
    tensors, dtypes = _tensors(op, variant), _dtypes(variant)
    for dtype, name in dtypes.items():
        yield f"{name} = {_kind_of(dtype)}"
    for name, view in variant.views:
        if view == "over_tokens":
            yield f"{name} = _over_tokens({name}, {main})"
        elif view == "new_axis":
            yield f"{name} = {name}[..., None]"
    yield f"tensors = [{', '.join(tensors)}]"
    yield f"_launch(_variant{number}, tensors, [{', '.join(_numbers(op))}], [{', '.join(dtypes.values())}])"


def _kind_of(dtype: DtypeOf) -> str:
    if dtype.kind == "argument":
        return f"_kind({dtype.name})"
    if dtype.kind == "float32":
        return "(torch.float32, False)"
    return f"_promoted({', '.join(_kind_of(part) for part in dtype.parts)})"
