"""Python host code: what generated candidates in Python share.

What a call needs depends on the layouts of its tensors: the variant, the dtypes of its values, and the steps of its
axes. The first call with given layouts finds these out and keeps a function for the later ones. Each language has its
own `_prepared`, which makes this function.
"""

from __future__ import annotations

import ast
import builtins
import keyword
from collections.abc import Iterable, Iterator

from kernwright.core.plain_text import scalar_literal
from kernwright.scaffold.candidate.traced_op import FLOAT32, DtypeOf, NotPerRow, TracedOp, TracedVariant

_CALLS = '''
_calls = {{}}  # by the layouts of the tensors: what a call needs to know of them is found out once


def _layout(tensor):
    return None if tensor is None else (tensor.dtype, tensor.shape, tensor.stride(){address})


def _views(tensors):
    """View tensors with four axes of the same sizes. The step of an axis is 0 where a tensor broadcasts."""
    shape = torch.broadcast_shapes(*(tensor.shape for tensor in tensors))
    if len(shape) > 4:
        raise ValueError("at most four axes: fold the others before the launch")
    return [tensor.expand([1] * (4 - len(shape)) + list(shape)) for tensor in tensors]
'''
_KINDS = '''

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
_OVER_TOKENS = '''

def _over_tokens(tensors, modulations, x):
    """View modulations, given by their places, so that they broadcast over the tokens of x.

    They have one row per batch entry, or one per frame. With frames, the tokens become two axes. So two modulations
    may have the same number of frames, or one of them a single frame.
    """
    if x.ndim != 3:
        return tensors
    tensors = [each[:, None] if k in modulations and each.ndim == 2 else each for k, each in enumerate(tensors)]
    frames = max((tensors[k].shape[1] for k in modulations if tensors[k].ndim == 4), default=0)
    if frames == 0:
        return tensors
    split = [each.unflatten(1, (frames, -1)) if each.ndim == 3 and each.shape[1] > 1 else each for each in tensors]
    return [each[:, None] if each.ndim == 3 else each for each in split]
'''


def layouts_of(op: TracedOp, *, address: bool) -> str:
    """Return the functions that look at the layouts of tensors.

    Args:
        op: the op.
        address: whether a call depends on how far the start of a tensor is from a multiple of 16 bytes.
    """
    calls = _CALLS.format(address=", tensor.data_ptr() % 16" if address else "")
    return (calls + _KINDS + (_OVER_TOKENS if _modulations(op.variants) else "")).strip("\n")


def function_of(op: TracedOp) -> str:
    """Return the function of a candidate, and the function that prepares the calls with given layouts."""
    return "\n".join([*_prepare(op), "", "", *_function(op)])


def _function(op: TracedOp) -> Iterator[str]:
    tensors = [f"{name}=None" if optional else name for name, optional in op.tensors]
    scalars = [f"{name}={scalar_literal(value)}" for name, value in op.scalars]
    out = ["out"] if op.outputs else []
    keywords = ["*", *scalars, *out] if scalars or out else []
    yield f"def {op.name}({', '.join([*tensors, *keywords])}):"
    if op.outputs and op.outputs != ("out",):
        yield f"    {', '.join(op.outputs)}{',' if len(op.outputs) > 1 else ''} = out"
    given = "".join(f"{name}, " for name in (*(name for name, _ in op.tensors), *op.outputs))
    choices = "".join(f", {name}" for name in _choices(op))
    yield f"    tensors = {given.strip(' ') if given.count(',') == 1 else given.strip(', ')}"
    yield f"    key = (*map(_layout, tensors){choices})" if choices else "    key = tuple(map(_layout, tensors))"
    yield "    if key not in _calls:"
    yield f"        _calls[key] = _prepare(*tensors{choices})"
    yield f"    _calls[key](tensors{''.join(f', {name}' for name in numbers_of(op))})"


def _prepare(op: TracedOp) -> Iterator[str]:
    yield f"def _prepare({', '.join([*(name for name, _ in op.tensors), *op.outputs, *_choices(op)])}):"
    yield '    """Return the call of the variant for tensors of these layouts."""'
    optional = [name for name, may_lack in op.tensors if may_lack]
    for number, variant in enumerate(op.variants):
        tests = [f"{name} is not None" if name in variant.given else f"{name} is None" for name in optional]
        tests += [f"{name} == {value!r}" for name, value in variant.choices]
        yield f"    if {' and '.join(tests) or 'True'}:"
        yield from (f"        {line}" for line in _prepared(op, variant, number))
    yield '    raise ValueError("no variant for these arguments: generate it with kernwright candidate new")'


def _prepared(op: TracedOp, variant: TracedVariant, number: int) -> Iterator[str]:
    names, views = tensors_of(op, variant), dict(variant.views)
    given = ", ".join(f"{name}[..., None]" if views.get(name) == "new_axis" else name for name in names)
    places = [str(names.index(name)) for name in names if name in _modulations([variant])]
    tensors = f"_over_tokens([{given}], [{', '.join(places)}], {main_of(op)})" if places else f"[{given}]"
    yield f"tensors = {tensors}"
    yield "kinds = ["
    yield from (f"    {_kind(dtype)},  # {name}" for dtype, name in dtypes_of(variant).items())
    yield "]"
    yield f"return _prepared(_variant{number}, tensors, kinds)"


def refuse_names_of_code(op: TracedOp, source: str) -> None:
    """Raise NotPerRow if an argument of the op has a name that the generated code uses for something else."""
    arguments = [*(name for name, _ in op.tensors), *(name for name, _ in op.scalars), *op.outputs]
    if words := [name for name in arguments if keyword.iskeyword(name)]:
        raise NotPerRow(op.name, f"{words[0]!r} is a word of Python, and no argument can have this name")
    tree = ast.parse(source)
    own = {name for statement in tree.body for name in _names_bound_by(statement)} - {op.name}
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    own |= {call.func.id for call in calls if isinstance(call.func, ast.Name) and hasattr(builtins, call.func.id)}
    own |= {str(option.arg) for call in calls for option in call.keywords}  # options of a launch
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    for name in arguments:
        counts = [
            sum(each.arg == name for each in ast.walk(function.args) if isinstance(each, ast.arg))
            for function in functions
        ]
        assigned = [_assigns(function, name) for function in functions]
        if name in own or any(count > 1 or (count and again) for count, again in zip(counts, assigned, strict=True)):
            raise NotPerRow(
                op.name, f"its argument {name!r} has a name that the generated code uses itself; cpp and cuda take it"
            )


def _names_bound_by(statement: ast.stmt) -> set[str]:
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return {statement.name}
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).partition(".")[0] for alias in statement.names}
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def _assigns(function: ast.FunctionDef, name: str) -> bool:
    names = (node for node in ast.walk(function) if isinstance(node, ast.Name))
    return any(node.id == name and isinstance(node.ctx, ast.Store) for node in names)


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


def _choices(op: TracedOp) -> list[str]:
    """Return the names of an op's scalars that are texts or truth values."""
    return [name for name, value in op.scalars if isinstance(value, bool | str)]


def _modulations(variants: Iterable[TracedVariant]) -> set[str]:
    """Return the tensors that are viewed over tokens."""
    return {name for variant in variants for name, view in variant.views if view == "over_tokens"}


def _kind(dtype: DtypeOf) -> str:
    """Return the expression of a dtype, and of whether its value is a number without an axis."""
    if dtype.kind == "argument":
        return f"_kind({dtype.name})"
    if dtype == FLOAT32:
        return "(torch.float32, False)"
    return f"_promoted({', '.join(_kind(part) for part in dtype.parts)})"
