"""OpParameters: the parameters of a drafted op, read from the captured calls of one function."""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernwright.admission.function_source import FunctionSource
from kernwright.capture.capture import (
    CapturedCall,
    CapturedDict,
    CapturedList,
    CapturedModule,
    CapturedOther,
    CapturedScalar,
    CapturedTensor,
)
from kernwright.core.errors import KernwrightError
from kernwright.core.op import Scalar
from kernwright.core.plain_text import scalar_literal

SCALARS = ("bool", "int", "float", "str")
CONSTANTS = ("dtype", "layout", "memory_format")


@dataclass(frozen=True)
class OpTensor:
    """A tensor parameter of the op."""

    name: str
    source: str  # its place in the call: hidden, mods[0], self.weight
    optional: bool
    is_floating: bool
    is_attribute: bool  # True if it is an attribute of `self`
    shapes: tuple[tuple[int, ...] | None, ...]  # the shape in each call


@dataclass(frozen=True)
class OpScalar:
    """A scalar parameter of the op."""

    name: str
    source: str
    default: Scalar


@dataclass
class OpParameters:
    """The op's parameters, and how the arguments of the function are made from them."""

    tensors: list[OpTensor] = field(default_factory=list)
    scalars: list[OpScalar] = field(default_factory=list)
    arguments: dict[str, str] = field(default_factory=dict)  # an expression for each parameter of the function
    attributes: dict[str, str] = field(default_factory=dict)  # an expression for each attribute of `self`

    @property
    def mapping(self) -> dict[str, str]:
        """The places of the op's tensors and scalars in a call, as in --map."""
        return {own.name: own.source for own in self.all if own.name != own.source}

    @property
    def all(self) -> list[OpTensor | OpScalar]:
        return [*self.tensors, *self.scalars]

    def activations(self, tables: Collection[str]) -> list[str]:
        """Return the first floating-point argument, and those that have its shape in every call.

        Args:
            tables: tensors that row numbers pick from; like weights, they are no activations.
        """
        known = [t for t in self.tensors if t.is_floating and not t.is_attribute and t.name not in tables]
        known = known or self.tensors
        first = next((t for t in known if not t.optional), known[0])
        return [t.name for t in known if t is first or _same_shapes(t, first)]

    @property
    def signature(self) -> str:
        """The parameters as Python writes them. An optional tensor may precede a required one, which has no default."""
        last_required = max((i for i, t in enumerate(self.tensors) if not t.optional), default=-1)
        words = []
        for place, tensor in enumerate(self.tensors):
            default = " = None" if tensor.optional and place > last_required else ""
            words.append(f"{tensor.name}: Tensor{' | None' if tensor.optional else ''}{default}")
        scalars = [f"{own.name}: {type(own.default).__name__} = {_literal(own.default)}" for own in self.scalars]
        return ", ".join([*words, *(["*", *scalars] if scalars else [])])

    @property
    def passed_on(self) -> str:
        """The arguments of a call of a function with the same signature."""
        return ", ".join([*(t.name for t in self.tensors), *(f"{own.name}={own.name}" for own in self.scalars)])


def _same_shapes(tensor: OpTensor, first: OpTensor) -> bool:
    return all(a is None or b is None or a == b for a, b in zip(tensor.shapes, first.shapes, strict=True))


def _literal(value: Scalar) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return scalar_literal(value)


def read_parameters(where: str, calls: Sequence[CapturedCall], source: FunctionSource | None) -> OpParameters:
    """Read the parameters of the op that a function computes.

    Args:
        where: the name of the function, for errors.
        calls: the captured calls of the function that ended well.
        source: its source, if it is a function of the user's project.
    """
    return _Reader(where, calls, source).read()


class _Reader:
    def __init__(self, where: str, calls: Sequence[CapturedCall], source: FunctionSource | None) -> None:
        self.where = where
        self.calls = calls
        self.source = source
        self.found = OpParameters()
        self.taken = {"out"}  # the judge passes outputs under this name
        self.locals = source.local_names() | source.global_names() if source else set()

    def read(self) -> OpParameters:
        arguments = [{argument.name: argument.value for argument in call.arguments} for call in self.calls]
        names = list(dict.fromkeys(name for call in arguments for name in call))
        instance = self.source.instance if self.source else None
        rest: dict[str, list[str]] = {}
        keywords: dict[str, str] = {}
        for name in names:
            if name == instance:
                continue
            values = [call.get(name) for call in arguments]
            expression = self._expression(name, values, self._default(name))
            base = name.partition("[")[0]
            if base != name:  # an item of *args
                rest.setdefault(base, []).append(expression)
            elif self.source is not None and name not in self.source.parameter_names:  # an item of **kwargs
                keywords[name] = expression
            else:
                self.found.arguments[name] = expression
        for base, items in rest.items():
            self.found.arguments[base] = f"({', '.join(items)},)"
        if self.source is not None:
            self._not_captured(self.source, keywords)
        if instance in names:  # parameters of the module follow the arguments of the method
            self._attributes(str(instance), [call.get(str(instance)) for call in arguments])
        if not self.found.tensors:
            raise KernwrightError(
                f"--draft-op {self.where}: no argument is a tensor", "draft an op from a function of tensors"
            )
        return self.found

    def _not_captured(self, source: FunctionSource, keywords: Mapping[str, str]) -> None:
        """Make the arguments that a capture does not have under the names of the function's parameters."""
        star, keyword = (each.arg if each else None for each in (source.node.args.vararg, source.node.args.kwarg))
        strange = [name for name in self.found.arguments if name not in source.parameter_names]
        strange += keywords if keyword is None else []
        if strange:
            raise KernwrightError(
                f"--draft-op {self.where}: its calls have the argument {strange[0]}, but `def {source.node.name}` of "
                f"{source.file.path} takes {', '.join(source.parameter_names) or 'none'}",
                "a decorator replaced the function: add functools.wraps to it, or capture a function without it",
            )
        if star is not None:
            self.found.arguments.setdefault(star, "()")
        if keyword is not None:
            self.found.arguments[keyword] = f"{{{', '.join(f'{name!r}: {text}' for name, text in keywords.items())}}}"
        # A capture does not record arguments of every type. Those that it lacks keep the function's defaults.
        for name, default in source.defaults.items():
            self.found.arguments.setdefault(name, ast.unparse(default))

    def _attributes(self, name: str, values: Sequence[Any]) -> None:
        """Make parameters of the attributes of `self` that the method uses."""
        assert self.source is not None
        for attribute in self.source.used_attributes():
            items = [value.items.get(attribute) if isinstance(value, CapturedModule) else None for value in values]
            if all(item is None for item in items):
                raise KernwrightError(
                    f"--draft-op {self.where}: the method uses {name}.{attribute}, no tensor, number or string",
                    f"move the computation into a function of tensors ({_as_a_function(self.source)}), call it from "
                    "the method, and capture that function",
                )
            self.found.attributes[attribute] = self._expression(f"{name}.{attribute}", items, None)

    def _default(self, name: str) -> Any:
        node = self.source.defaults.get(name) if self.source else None
        try:
            return ast.literal_eval(node) if node is not None else None
        except (ValueError, TypeError):  # an expression
            return None

    def _expression(self, place: str, values: Sequence[Any], default: Any) -> str:
        """Return the expression of a value of the call in terms of the op's parameters, which are added as needed."""
        given = [value for value in values if value is not None and not _is_none(value)]
        if not given:
            return "None"
        first = given[0]
        if any(type(value) is not type(first) for value in given):
            kinds = sorted({type(value).__name__.removeprefix("Captured").lower() for value in given})
            raise self._refusal(place, f"is a {' in some calls and a '.join(kinds)} in others")
        if isinstance(first, CapturedTensor):
            return self._tensor(place, values)
        if isinstance(first, CapturedScalar):
            return self._scalar(place, given, len(given) < len(values), default)
        if isinstance(first, CapturedList) and len({len(value.items) for value in given}) == 1:
            items = [
                self._expression(f"{place}[{number}]", [_item(value, number) for value in values], None)
                for number in range(len(first.items))
            ]
            return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
        if isinstance(first, CapturedDict) and len({tuple(value.items) for value in given}) == 1:
            pairs = [
                f"{key!r}: {self._expression(f'{place}[{key}]', [_item(value, key) for value in values], None)}"
                for key in first.items
            ]
            return f"{{{', '.join(pairs)}}}"
        if isinstance(first, CapturedModule | CapturedOther):
            raise self._refusal(place, f"is a {first.type}")
        raise self._refusal(place, "holds different items in different calls")

    def _refusal(self, place: str, problem: str) -> KernwrightError:
        return KernwrightError(
            f"--draft-op {self.where}: the argument {place} {problem}",
            "an op takes tensors, numbers and strings, each of one kind: write a function that takes those, call it in "
            "the program and capture it; or write the op yourself and name it with --definitions",
        )

    def _tensor(self, place: str, values: Sequence[CapturedTensor | None]) -> str:
        tensors = [value if isinstance(value, CapturedTensor) else None for value in values]
        name = self._name(place)
        self.found.tensors.append(
            OpTensor(
                name=name,
                source=place,
                optional=None in tensors,
                is_floating=any(tensor is not None and "float" in tensor.dtype for tensor in tensors),
                is_attribute=place.startswith(f"{self.source.instance}." if self.source else "\0"),
                shapes=tuple(tensor.shape if tensor is not None else None for tensor in tensors),
            )
        )
        return name

    def _scalar(self, place: str, given: Sequence[CapturedScalar], some_are_none: bool, default: Any) -> str:
        kinds = {value.type for value in given}
        if kinds <= set(CONSTANTS):
            if len({value.value for value in given}) > 1 or some_are_none:
                raise self._refusal(place, f"is a torch.{given[0].type} that differs between calls")
            return f"torch.{given[0].value}"
        if some_are_none:
            raise self._refusal(place, f"is None in some calls and {given[0].value!r} in others")
        values = [_number(value) for value in given]
        if kinds == {"int", "float"}:
            values = [float(value) for value in values]
        if not kinds <= set(SCALARS) or len({type(value) for value in values}) > 1:
            raise self._refusal(place, f"is of the types {' and '.join(sorted(kinds))}")
        first = values[0]
        if any(isinstance(value, float) and not math.isfinite(value) for value in values):  # a row cannot hold it
            if len(set(map(repr, values))) > 1:
                raise self._refusal(place, f"is {first} in some calls and another number in others")
            return scalar_literal(first)
        if type(default) is type(first) or (isinstance(first, float) and type(default) is int):
            first = type(first)(default)
        name = self._name(place)
        self.found.scalars.append(OpScalar(name, place, first))
        return name

    def _name(self, place: str) -> str:
        """Return a free name for a value of the call: `mods_0` for `mods[0]`, `weight` for `self.weight`."""
        word = place if place.isidentifier() else re.sub(r"\W+", "_", place).strip("_")
        is_attribute = self.source is not None and place.startswith(f"{self.source.instance}.")
        short = place.partition(".")[2] if is_attribute else word
        if is_attribute and short in self.locals:  # the method has a variable of that name
            short = word
        name = f"argument_{short}" if short[:1].isdigit() else short
        while name in self.taken or (name != place and not is_attribute and name in self.locals):
            name += "_"
        self.taken.add(name)
        return name


def _number(value: CapturedScalar) -> Any:
    return float(value.value) if value.type == "float" and value.value is not None else value.value


def _item(value: Any, key: int | str) -> Any:
    if value is None or _is_none(value):
        return None
    return value.items[key]


def _is_none(value: object) -> bool:
    return isinstance(value, CapturedScalar) and value.type == "none"


def _as_a_function(source: FunctionSource) -> str:
    own = [parameter.arg for parameter in source.parameters if parameter.arg != source.instance]
    return f"def {source.node.name}({', '.join([*own, 'weight', '...'])})"


def returned_places(calls: Sequence[CapturedCall]) -> Iterator[str]:
    """Yield the places of the tensors that every call returned: return, return[0], return[mean]."""
    places: list[Mapping[str, object]] = [
        {n: v for n, v in call.values().items() if n.partition("[")[0] == "return" and isinstance(v, CapturedTensor)}
        for call in calls
    ]
    yield from (place for place in places[0] if all(place in other for other in places[1:]))
