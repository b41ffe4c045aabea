"""Native code: a traced op as one C++ or CUDA file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.resources import files
from string import Template
from typing import Literal

from kernwright.scaffold.candidate.traced_op import DtypeOf, RowValue, TracedOp, TracedVariant

NativeLanguage = Literal["cpp", "cuda"]
BINARY = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
TYPES = {bool: "bool", int: "int64_t", float: "double", str: "ffi::String"}


def native_source(op: TracedOp, language: NativeLanguage) -> str:
    """Return the source of a candidate in C++ or CUDA."""
    tensors = {name: number for number, (name, _) in enumerate(op.tensors)}
    outputs = {name: len(tensors) + number for number, name in enumerate(op.outputs)}
    operands = tensors | outputs
    common = _template("operands").substitute(operands=len(operands), scalars=max(1, len(_numbers(op))))
    return _template(f"kernel.{language}").substitute(
        op=op.name,
        contract=op.contract,
        common=common.rstrip(),
        variants="\n\n".join(_variant(op, each, number, operands) for number, each in enumerate(op.variants)),
        parameters=",\n         ".join(_parameters(op)),
        arguments="\n".join(_arguments(op, operands)),
        dispatch="\n".join(_dispatch(op, language)),
    )


def _template(name: str) -> Template:
    file = files("kernwright.scaffold.templates.candidate").joinpath(f"{name}.template")
    return Template(file.read_text(encoding="utf-8"))


def _numbers(op: TracedOp) -> list[str]:
    return [name for name, value in op.scalars if not isinstance(value, bool | str)]


def _parameters(op: TracedOp) -> Iterator[str]:
    for name, optional in op.tensors:
        yield f"ffi::Optional<ffi::TensorView> {_own(name)}" if optional else f"ffi::TensorView {_own(name)}"
    yield from (f"{TYPES[type(value)]} {_own(name)}" for name, value in op.scalars)
    yield from (f"ffi::TensorView {_own(name)}" for name in op.outputs)


def _own(name: str) -> str:
    """Return the parameter of an argument. Its name is none of C++, of the template and of macros."""
    return f"{name}_"


def _arguments(op: TracedOp, operands: dict[str, int]) -> Iterator[str]:
    optional = {name for name, may_lack in op.tensors if may_lack}
    for name, number in operands.items():
        given = f"if ({_own(name)}.has_value()) " if name in optional else ""
        yield f"  {given}call.operands[{number}] = described({_own(name)}{'.value()' if given else ''});"
    for number, name in enumerate(_numbers(op)):
        yield f"  call.scalars[{number}] = static_cast<float>({_own(name)});"


def _dispatch(op: TracedOp, language: NativeLanguage) -> Iterator[str]:
    optional = [name for name, may_lack in op.tensors if may_lack]
    for number, variant in enumerate(op.variants):
        tests = [f"{'' if name in variant.given else '!'}{_own(name)}.has_value()" for name in optional]
        tests += [f"{_own(name)} == {json.dumps(value)}" for name, value in variant.choices]
        views = {name: view for name, view in variant.views if view}
        modulated = [str(_index(op, name)) for name, view in views.items() if view == "over_tokens"]
        extended = [str(_index(op, name)) for name, view in views.items() if view == "new_axis"]
        main = _index(op, op.inplace[0] if op.inplace else op.outputs[0])
        yield f"  if ({' && '.join(tests) or 'true'}) {{"
        yield f"    prepare(&call, {main}, {{{', '.join(modulated)}}}, {{{', '.join(extended)}}});"
        yield f"    {'launch' if language == 'cuda' else 'run_rows'}(call, Variant{number}());"
        yield "    return;"
        yield "  }"


def _index(op: TracedOp, name: str) -> int:
    return [*(each for each, _ in op.tensors), *op.outputs].index(name)


def _variant(op: TracedOp, variant: TracedVariant, number: int, operands: dict[str, int]) -> str:
    given = f"with {', '.join(variant.given)}" if variant.given else "without optional tensors"
    chosen = "".join(f", {name} {value!r}" for name, value in variant.choices)
    lines = [
        f"// {given}{chosen}", f"struct Variant{number} {{", "  template <typename Row>",
        "  ROW_FUNCTION void operator()(const Call& call, Row& row) const {",
    ]  # fmt: skip
    lines += [f"    const Tag {name} = {text};" for name, text in _tags(variant, operands)]
    done: set[int] = set()
    for value in variant.values:
        if value.op == "mean":
            source = value.args[0]
            assert isinstance(source, RowValue)
            lines.append(f"    float v{value.number} = row.mean(call.width, [&](int64_t i) -> float {{")
            lines += [f"      {line}" for line in _computed(op, [source], done, operands)]
            lines += [f"      return v{source.number};", "    });"]
            lines += [f"    v{value.number} = rounded(v{value.number}, {_tag(value.dtype)});"]
            done.add(value.number)
        elif value.kind == "row":
            lines.append(f"    {_statement(op, value, operands)}")
            done.add(value.number)
    lines.append("    row.each(call.width, [&](int64_t i) {")
    lines += [f"      {line}" for line in _computed(op, [store.value for store in variant.stores], done, operands)]
    for store in variant.stores:
        lines.append(f"      row.store({operands[store.target]}, i, v{store.value.number});")
    return "\n".join([*lines, "    });", "  }", "};"])


def _computed(op: TracedOp, wanted: list[RowValue], done: set[int], operands: dict[str, int]) -> list[str]:
    """Return the statements that compute the values, and all that they need, for one element."""
    needed: dict[int, RowValue] = {}

    def visit(value: RowValue) -> None:
        if value.number not in done and value.number not in needed:
            for each in value.args:
                if isinstance(each, RowValue):
                    visit(each)
            needed[value.number] = value

    for value in wanted:
        visit(value)
    return [_statement(op, value, operands) for value in needed.values()]


def _statement(op: TracedOp, value: RowValue, operands: dict[str, int]) -> str:
    if value.op == "load":
        return f"const float v{value.number} = row.load({operands[str(value.args[0])]}, i);"
    terms = [_term(op, each) for each in value.args]
    if value.op in BINARY:
        expression = f"{terms[0]} {BINARY[value.op]} {terms[1]}"
    elif value.op == "round":
        expression = terms[0]
    else:
        expression = f"{value.op}_of({terms[0]})"
    return f"const float v{value.number} = rounded({expression}, {_tag(value.dtype)});"


def _term(op: TracedOp, each: RowValue | float | str) -> str:
    if isinstance(each, RowValue):
        return f"v{each.number}"
    if isinstance(each, str):
        return f"call.scalars[{_numbers(op).index(each)}]"
    return f"{each!r}f"


def _tag(dtype: DtypeOf) -> str:
    """Return the name of a dtype's tag in the code."""
    if dtype.kind == "promoted":
        return "_".join(_tag(part).removesuffix("_type") for part in dtype.parts) + "_type"
    return re.sub(r"\W", "_", str(dtype)) + "_type"


def _tags(variant: TracedVariant, operands: dict[str, int]) -> Iterator[tuple[str, str]]:
    """Yield the name and the value of each dtype's tag, parts before the dtypes that are promoted from them."""
    seen: set[str] = set()

    def parts(dtype: DtypeOf) -> Iterator[DtypeOf]:
        for part in dtype.parts:
            yield from parts(part)
        yield dtype

    for value in (each for each in variant.values if each.op != "load"):
        for dtype in parts(value.dtype):
            if _tag(dtype) in seen:
                continue
            seen.add(_tag(dtype))
            if dtype.kind == "argument":
                text = f"call.operands[{operands[dtype.name]}].tag"
            elif dtype.kind == "float32":
                text = "Tag{Type::kFloat32, false}"
            else:
                text = f"promoted({', '.join(_tag(part) for part in dtype.parts)})"
            yield _tag(dtype), text
