"""Python host code: what candidates in Python share, which is the choice of a variant and the dtypes of its values."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kernwright.scaffold.candidate.traced_op import FLOAT32, DtypeOf, TracedOp, TracedVariant

KINDS = '''
def _promoted(*kinds):
    """Return the dtype of a result. A number without an axis does not promote tensors that have axes."""
    with_axes = [dtype for dtype, is_number in kinds if not is_number] or [dtype for dtype, _ in kinds]
    result = with_axes[0]
    for dtype in with_axes[1:]:
        result = torch.promote_types(result, dtype)
    return result, all(is_number for _, is_number in kinds)


def _kind(tensor):
    return tensor.dtype, tensor.ndim == 0
'''


def head_of(op: TracedOp) -> Iterator[str]:
    """Yield the lines with which the function of a candidate begins."""
    tensors = [f"{name}=None" if optional else name for name, optional in op.tensors]
    scalars = [f"{name}={value!r}" for name, value in op.scalars]
    out = ["out"] if op.outputs else []
    keywords = ["*", *scalars, *out] if scalars or out else []
    yield f"def {op.name}({', '.join([*tensors, *keywords])}):"
    if op.outputs:
        yield f"    {', '.join(op.outputs)}{',' if len(op.outputs) > 1 else ''} = out"


def choice_of(op: TracedOp, lines_of: Callable[[TracedVariant, int], Iterator[str]]) -> Iterator[str]:
    """Yield the lines that choose a variant. `lines_of` gives the lines of a chosen variant."""
    optional = [name for name, may_lack in op.tensors if may_lack]
    for number, variant in enumerate(op.variants):
        tests = [f"{name} is not None" if name in variant.given else f"{name} is None" for name in optional]
        tests += [f"{name} == {value!r}" for name, value in variant.choices]
        yield f"    if {' and '.join(tests) or 'True'}:"
        yield from (f"        {line}" for line in lines_of(variant, number))
    yield '    raise ValueError("no variant for these arguments: generate it with kernwright candidate new")'


def main_of(op: TracedOp) -> str:
    """Return the tensor with the shape of the result."""
    return op.inplace[0] if op.inplace else op.outputs[0]


def tensors_of(op: TracedOp, variant: TracedVariant) -> list[str]:
    """Return the names of a variant's tensors, the outputs last."""
    given = {name for name, optional in op.tensors if not optional or name in variant.given}
    return [name for name, _ in op.tensors if name in given] + list(op.outputs)


def numbers_of(op: TracedOp) -> list[str]:
    """Return the names of an op's scalars that are numbers."""
    return [name for name, value in op.scalars if not isinstance(value, bool | str)]


def dtypes_of(variant: TracedVariant) -> dict[DtypeOf, str]:
    """Return the dtypes other than float32 that values are rounded to, each with its name in the kernel."""
    found: dict[DtypeOf, str] = {}
    for value in variant.values:
        if value.op != "load" and value.dtype != FLOAT32:
            found.setdefault(value.dtype, f"T{len(found)}")
    return found


def kind_of(dtype: DtypeOf) -> str:
    """Return the expression of a dtype, and of whether its value is a number without an axis."""
    if dtype.kind == "argument":
        return f"_kind({dtype.name})"
    if dtype == FLOAT32:
        return "(torch.float32, False)"
    return f"_promoted({', '.join(kind_of(part) for part in dtype.parts)})"
