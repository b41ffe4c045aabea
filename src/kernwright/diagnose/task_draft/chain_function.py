"""ChainFunction: the operators of a chain as a Python function, with the data flow that their shapes allow."""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from kernwright.core.errors import KernwrightError
from kernwright.diagnose.chain import OpCall
from kernwright.diagnose.hotspots.traffic import NORMS

CAPTURE_IT = (
    "record the function that computes it with kernwright capture, then: kernwright task new NAME --from CAPTURE"
)
RECORD_SHAPES = "record the trace with record_shapes=True"
# Numbers of torch.dtype in recorded arguments.
_DTYPES = {
    0: torch.uint8, 1: torch.int8, 3: torch.int32, 4: torch.int64, 5: torch.float16, 6: torch.float32, 7: torch.float64,
    9: torch.complex64, 11: torch.bool, 15: torch.bfloat16,
}  # fmt: skip
_DTYPE_OF_TYPE = {
    "c10::bfloat16": torch.bfloat16, "c10::half": torch.float16, "float": torch.float32, "double": torch.float64,
    "int": torch.int32, "long int": torch.int64, "long": torch.int64, "bool": torch.bool,
    "c10::complex<float>": torch.complex64, "unsigned char": torch.uint8, "signed char": torch.int8,
}  # fmt: skip
_CASTS = frozenset({"to", "_to_copy", "type_as", "float"})
_HALF = (torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Argument:
    """One argument of a recorded call."""

    shape: Any
    kind: str
    strides: Any
    value: str

    @property
    def dtype(self) -> torch.dtype | None:
        return _DTYPE_OF_TYPE.get(self.kind.lower())

    @property
    def is_tensor(self) -> bool:
        return isinstance(self.shape, list) and bool(self.shape) and all(isinstance(size, int) for size in self.shape)

    @property
    def is_tensor_list(self) -> bool:
        return self.kind == "TensorList" and isinstance(self.shape, list)

    @property
    def is_number_without_value(self) -> bool:
        """True for a number whose value the trace does not have, such as 2.0 in `x * 2.0`."""
        return self.dtype is not None and not self.shape and not self.value


@dataclass
class ChainFunction:
    """A function under construction. It runs each operator on tensors without data, and writes it as source.

    Attributes:
        lines: the body.
        inputs: the tensors that come from outside, by parameter.
        scalars: the parameters that stand for numbers of unknown value.
        outputs: the variables that nothing in the function uses.
        notes: guesses that the reader must check.
        twins: the inputs that have the shape of an earlier one.
    """

    lines: list[str] = field(default_factory=list)
    inputs: dict[str, Tensor] = field(default_factory=dict)
    scalars: list[str] = field(default_factory=list)
    outputs: dict[str, Tensor] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)
    twins: list[str] = field(default_factory=list)
    _made: dict[str, Tensor] = field(default_factory=dict)
    _used: set[str] = field(default_factory=set)
    _casts: set[str] = field(default_factory=set)  # results of casts, which a chain may use again
    _words: dict[str, str] = field(default_factory=dict)
    _in_call: set[str] = field(default_factory=set)  # results that the present call must not use, or already uses

    @classmethod
    def of(cls, calls: Sequence[OpCall], kept: Collection[str] = ()) -> ChainFunction:
        """Return the function of some calls.

        Args:
            kept: words of calls whose results are outputs, although the function uses them.

        Raises:
            KernwrightError: if the trace has no shapes, or an operator does not belong to PyTorch.
        """
        found = cls()
        wanted: set[str] = set()
        for call in calls:
            variable = found._add(call)
            if call.word in kept:
                wanted.add(variable)
        found.outputs = {name: own for name, own in found._made.items() if name not in found._used or name in wanted}
        if found.twins:
            names = ", ".join(found.twins)
            found.notes[f"{names}: each may be the same tensor as another one of its shape; if so, leave it out"] = None
        return found

    def _add(self, call: OpCall) -> str:
        arguments = arguments_of(call)
        # Two norms in a row belong to queries and keys: no model takes the norm of a norm.
        self._in_call = {name for name, word in self._words.items() if word == call.word and word in NORMS}
        name = call.op.name if call.op else ""
        if call.word in _CASTS:
            text, result = self._cast(arguments)
        else:
            text, result = self._call(name, arguments)
        variable = f"t{len(self._made) + 1}"
        self.lines.append(f"{variable} = {text}")
        self._made[variable] = result
        self._words[variable] = call.word
        if call.word in _CASTS:
            self._casts.add(variable)
        return variable

    def _cast(self, arguments: Sequence[Argument]) -> tuple[str, Tensor]:
        text, value = self._tensor(arguments[0].shape, arguments[0].dtype, arguments[0].strides)
        numbers = [int(each.value) for each in arguments[1:3] if each.value.isdigit() and int(each.value) in _DTYPES]
        dtype = _DTYPES[numbers[0]] if numbers else arguments[1].dtype if len(arguments) > 1 else None
        if dtype is None:
            dtype = torch.float32 if value.dtype in _HALF else next(iter(self.inputs.values())).dtype
            self.notes["the trace does not say what a cast converts to; float32 and back were assumed"] = None
        if dtype == torch.float32 and value.dtype in _HALF:
            return f"wide({text})", value.to(dtype)
        if dtype in _HALF:  # the op's own dtype, so that the definition also runs in float64
            same = next((own for own, tensor in self.inputs.items() if tensor.dtype == dtype), None)
            return f"{text}.to({same}.dtype)" if same else f"{text}.to({dtype})", value.to(dtype)
        return f"{text}.to({dtype})", value.to(dtype)

    def _call(self, name: str, arguments: Sequence[Argument]) -> tuple[str, Tensor]:
        overload = _overload(name, arguments)
        words: list[str] = []
        values: list[Any] = []
        named: dict[str, Any] = {}
        for parameter, argument in zip(overload._schema.arguments, arguments, strict=False):
            text, value = self._argument(argument)
            if parameter.name == "normalized_shape" and words:
                text = f"{words[0]}.shape[-{len(value)}:]"
            if parameter.kwarg_only:
                if text not in ("None", str(parameter.default_value)):
                    words.append(f"{parameter.name}={text}")
                    named[parameter.name] = value
            else:
                words.append(text)
                values.append(value)
        packet = _packet(name)
        try:
            result = packet(*values, **named)
        except Exception as error:  # any error of the operator on these shapes
            first = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise KernwrightError(
                f"the operator {name} does not run on the trace's shapes: {first}", CAPTURE_IT
            ) from None
        text = f"torch.ops.{packet._qualified_op_name.replace('::', '.')}({', '.join(words)})"
        if isinstance(result, tuple | list):
            return f"{text}[0]", result[0]
        return text, result

    def _argument(self, argument: Argument) -> tuple[str, Any]:
        if argument.is_tensor_list:
            pairs = [self._tensor(own, self._usual_dtype(), None) for own in argument.shape]
            return "[" + ", ".join(text for text, _ in pairs) + "]", [value for _, value in pairs]
        if argument.is_tensor:
            return self._tensor(argument.shape, argument.dtype, argument.strides)
        if argument.is_number_without_value:
            parameter = f"c{len(self.scalars) + 1}"
            self.scalars.append(parameter)
            self.notes[f"{parameter} is a number whose value the trace does not have: correct its default"] = None
            return parameter, 1.0
        if not argument.value:
            return "None", None
        value = _literal(argument.value)
        return repr(value), value

    def _usual_dtype(self) -> torch.dtype:
        known = [*self._made.values(), *self.inputs.values()]
        return known[-1].dtype if known else torch.bfloat16

    def _tensor(self, shape: list[int], dtype: torch.dtype | None, strides: Any) -> tuple[str, Tensor]:
        """Return an earlier result that a tensor may be, or a new parameter."""
        if (name := self._earlier(shape, dtype)) is not None:
            self._used.add(name)
            self._in_call.add(name)
            value = self._made[name]
            if list(value.shape) == list(shape):
                return name, value
            alike = next((n for n, own in self.inputs.items() if list(own.shape) == list(shape)), None)
            return f"{name}.reshape({f'{alike}.shape' if alike else tuple(shape)})", value.reshape(shape)
        parameter = "x" if not self.inputs else f"x{len(self.inputs) + 1}"
        if any(list(other.shape) == list(shape) for other in self.inputs.values()):
            self.twins.append(parameter)
        fits = isinstance(strides, list) and len(strides) == len(shape) and all(isinstance(s, int) for s in strides)
        value = torch.empty_strided(
            shape, strides if fits else _dense(shape), dtype=dtype or self._usual_dtype(), device="meta"
        )
        self.inputs[parameter] = value
        return parameter, value

    def _earlier(self, shape: list[int], dtype: torch.dtype | None) -> str | None:
        """Return the last unused result of this size and dtype, else the result of a cast, which may be used again."""
        elements = torch.Size(shape).numel()
        fitting = [
            name
            for name, value in self._made.items()
            if value.numel() == elements and (dtype is None or value.dtype == dtype) and name not in self._in_call
        ]
        fresh = [name for name in fitting if name not in self._used]
        return next(reversed(fresh or [name for name in fitting if name in self._casts]), None)


def _dense(shape: Sequence[int]) -> list[int]:
    return list(torch.empty(list(shape), device="meta").stride())


def arguments_of(call: OpCall) -> list[Argument]:
    """Return the recorded arguments of a call.

    Raises:
        KernwrightError: if the trace has no shapes.
    """
    if call.op is None or not call.op.inputs or not isinstance(call.op.inputs[0], list):
        what = f"the operator {call.op.name}" if call.op else f"a kernel ({call.word})"
        raise KernwrightError(f"the trace has no shapes of {what}", f"{RECORD_SHAPES}, or {CAPTURE_IT}")
    dims, types, strides, values = (list(each or []) for each in (*call.op.inputs, None, None, None)[:4])

    def at(found: list[Any], place: int) -> Any:
        return found[place] if place < len(found) else None

    return [
        Argument(shape, str(at(types, place) or ""), at(strides, place), str(at(values, place) or ""))
        for place, shape in enumerate(dims)
    ]


def _packet(name: str) -> Any:
    namespace, _, bare = name.partition("::")
    bare = bare.partition(".")[0]
    library = getattr(torch.ops, namespace, None)
    # The function computes a result of its own, so the operator that changes its argument is not wanted.
    for each in (bare.rstrip("_"), bare):
        found = getattr(library, each, None)
        if found is not None:
            return found
    raise KernwrightError(f"{name} is not an operator of PyTorch", CAPTURE_IT)


def _overload(name: str, arguments: Sequence[Argument]) -> Any:
    """Return the overload that the recorded arguments fit best."""
    packet = _packet(name)
    overloads = [getattr(packet, each) for each in packet.overloads()]
    return min(overloads, key=lambda own: _misfit(own, arguments))


def _misfit(overload: Any, arguments: Sequence[Argument]) -> int:
    parameters = overload._schema.arguments
    wrong = 10 * abs(len(parameters) - len(arguments))
    if any(parameter.name == "out" for parameter in parameters):
        wrong += 100
    for parameter, argument in zip(parameters, arguments, strict=False):
        wants = str(parameter.type)
        if argument.is_tensor or argument.is_tensor_list:
            wrong += "Tensor" not in wants
        elif argument.value:
            wrong += "Tensor" in wants
    return wrong


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
