"""CapturedRow: a captured call, read as a call of an op."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch

from kernwright.capture.capture import CapturedCall, CapturedDict, CapturedScalar, CapturedTensor
from kernwright.core.errors import BadFile
from kernwright.core.op import Op
from kernwright.tasks.tensor import TORCH_NAMES, ConcreteTensor, DType, contiguous_strides
from kernwright.tasks.workload import Scalar

DTYPES: dict[str, DType] = {torch_name: name for name, torch_name in TORCH_NAMES.items()}  # type: ignore[misc]


@dataclass(frozen=True)
class DraftRequest:
    """Facts about a task that its author states in addition to the capture."""

    name: str
    source: Path
    call: str
    op: Op
    mapping: Mapping[str, str] = field(default_factory=dict)
    models: tuple[str, ...] = ()
    title: str = ""
    settings: Mapping[str, object] = field(
        default_factory=dict
    )  # arguments of the public call that the op lacks, with defaults


@dataclass(frozen=True)
class CapturedRow:
    """A captured call with the tensor and scalar names of the op."""

    inputs: dict[str, ConcreteTensor]
    outputs: dict[str, ConcreteTensor]
    scalars: dict[str, Scalar]

    @property
    def layout(self) -> tuple[tuple[str, tuple[bool, ...]], ...]:
        """The tensors and, per axis, whether its size exceeds 1. Axes of size 1 broadcast."""
        tensors = self.inputs | self.outputs
        return tuple((name, tuple(size > 1 for size in tensor.shape)) for name, tensor in tensors.items())

    @property
    def key(self) -> str:
        tensors = {name: t.model_dump(mode="json") for name, t in (self.inputs | self.outputs).items()}
        return json.dumps([tensors, self.scalars], sort_keys=True)


class OtherResults(BadFile):
    """The op accepts the call but returns other shapes or dtypes than the program got."""


def read_row(where: str, call: CapturedCall, request: DraftRequest, notes: dict[str, None]) -> CapturedRow:
    return _Reading(where, call, request, notes).row()


class _Reading:
    """Reads one call as a call of the op. An error names the line, the argument and the arguments that would fit."""

    def __init__(self, where: str, call: CapturedCall, request: DraftRequest, notes: dict[str, None]) -> None:
        self.where = where
        self.values = call.values()
        self.gives_dict = isinstance(call.returns, CapturedDict)
        self.request = request
        self.op = request.op
        self.notes = notes
        self.used: set[str] = set()

    def row(self) -> CapturedRow:
        inputs = {}
        for parameter in self.op.tensor_parameters:
            tensor = self._input(parameter.name, parameter.optional)
            if tensor is not None:
                inputs[parameter.name] = tensor
        scalars = {name: value for name in self.op.scalar_defaults if (value := self._scalar(name)) is not None}
        row = CapturedRow(inputs, self._outputs(), scalars)
        row = CapturedRow(inputs, self._as_the_op_gives_them(row), scalars)
        unused = [
            name
            for name, value in self.values.items()
            if name not in {*self.used, *self.request.settings}
            and not _is_return(name)
            and not _is_none(value)  # the argument was not given
        ]
        if unused:
            self.notes[f"not used: {', '.join(unused)} of {self.request.call}"] = None
        return row

    def _input(self, name: str, optional: bool) -> ConcreteTensor | None:
        source = self.request.mapping.get(name, name)
        value = self.values.get(source)
        absent = value is None or _is_none(value)
        if absent and optional:
            if name in self.request.mapping and value is None:
                raise self._missing(name, source)
            self.used.add(source)
            return None
        if absent:
            raise self._missing(name, source)
        if not isinstance(value, CapturedTensor):
            raise BadFile(self.where, source, "is not a tensor", f"--map {name}=ARGUMENT; {self._offers()}")
        self.used.add(source)
        return self._stored(name, source, value)

    def _stored(self, name: str, source: str, value: CapturedTensor) -> ConcreteTensor:
        """Return a tensor as it is stored: an axis that was expanded has size 1, since a kernel reads it once.

        Only an input has an offset. The memory of an output is chosen by the implementation.
        """
        tensor = self._concrete(source, value)
        expanded = [place for place, size in enumerate(tensor.shape) if size > 1 and tensor.strides[place] == 0]
        if expanded:
            self.notes[f"{name} was expanded over axis {', '.join(map(str, expanded))}: rows have size 1 there"] = None
            shape = tuple(1 if place in expanded else size for place, size in enumerate(tensor.shape))
            tensor = _tidy(shape, tensor.dtype, tensor.strides)
        return tensor.model_copy(update={"offset": value.offset})

    def _concrete(self, source: str, value: CapturedTensor) -> ConcreteTensor:
        if value.dtype not in DTYPES:
            raise BadFile(self.where, source, f"has dtype {value.dtype}", f"rows can have: {', '.join(sorted(DTYPES))}")
        if value.strides is None:
            raise BadFile(self.where, source, "is not a strided tensor", "capture a function that takes dense tensors")
        return _tidy(value.shape, DTYPES[value.dtype], value.strides)

    def _scalar(self, name: str) -> Scalar | None:
        source = self.request.mapping.get(name, name)
        value = self.values.get(source)
        default = self.op.scalar_defaults[name]
        if value is None:
            if name in self.request.mapping:
                raise self._missing(name, source)
            self.notes[f"{name} was not captured: rows leave it at the op's own {default!r}"] = None
            return None
        if not isinstance(value, CapturedScalar) or value.value is None:
            raise BadFile(
                self.where, source, "is neither a number nor a string", f"--map {name}=ARGUMENT; {self._offers()}"
            )
        self.used.add(source)
        wanted, got = type(default), value.value
        if wanted is float and type(got) is int:
            got = float(got)
        if type(got) is not wanted:
            raise BadFile(
                self.where, source, f"is {got!r}", f"{self.op.name} takes a {wanted.__name__} as {name}: --map another"
            )
        return got

    def _outputs(self) -> dict[str, ConcreteTensor]:
        if not self.op.outputs:
            return {}  # the op changes its arguments; a function may return them as well
        returned = [n for n, v in self.values.items() if _is_return(n) and isinstance(v, CapturedTensor)]
        mapped = {name: self.request.mapping[name] for name in self.op.outputs if name in self.request.mapping}
        named = {name: f"return[{name}]" for name in self.op.outputs if f"return[{name}]" in returned}
        if not mapped and len(named) == len(self.op.outputs):  # the items of a dict have names, and no meaningful order
            mapped = named
        sources = mapped or dict(zip(self.op.outputs, returned, strict=False))
        is_unclear = not mapped and (len(returned) != len(self.op.outputs) or (self.gives_dict and len(returned) > 1))
        if set(sources) != set(self.op.outputs) or is_unclear:
            raise BadFile(
                self.where, "returns", f"holds {len(returned)} tensor(s), {self.op.name} gives {list(self.op.outputs)}",
                f"say where each is found, as in --map {self.op.outputs[0] if self.op.outputs else 'y'}=return[0], "
                f"or --map with an argument it is written to; {self._offers()}",
            )  # fmt: skip
        outputs = {}
        for name in self.op.outputs:
            value = self.values.get(sources[name])
            if not isinstance(value, CapturedTensor):
                raise self._missing(name, sources[name])
            self.used.add(sources[name])
            outputs[name] = self._concrete(sources[name], value)
        return outputs

    def _as_the_op_gives_them(self, row: CapturedRow) -> dict[str, ConcreteTensor]:
        """Return the outputs of the op for this call, and check that the program got the same shapes and dtypes.

        The strides are those of the op: contenders and baselines must both return them.
        """
        try:
            given = give(self.op, row.inputs, row.scalars)
        except NotImplementedError:
            return row.outputs  # the op reads values, so that its outputs cannot be computed from shapes
        except Exception as error:  # any error of the reference means that the call does not fit
            raise BadFile(
                self.where,
                "arguments",
                f"{self.op.name} fails with these arguments: {error}",
                "map other arguments with --map",
            ) from error
        for name, tensor in given.items():
            seen = row.outputs[name]
            if (tensor.shape, tensor.dtype) != (seen.shape, seen.dtype):
                raise OtherResults(
                    self.where, "returns",
                    f"{name} was {seen.dtype}{list(seen.shape)}; {self.op.name} gives {tensor.dtype}{[*tensor.shape]}",
                    "this op is not what was captured: choose another --op, or map other arguments with --map",
                )  # fmt: skip
        return given

    def _missing(self, name: str, source: str) -> BadFile:
        return BadFile(
            self.where,
            source,
            f"was not captured, but {self.op.name} needs {name}",
            f"--map {name}=NAME; {self._offers()}",
        )

    def _offers(self) -> str:
        return f"the call has: {', '.join(self.values)}"


def _is_return(name: str) -> bool:
    return name == "return" or name.startswith("return[")


def _is_none(value: object) -> bool:
    return isinstance(value, CapturedScalar) and value.type == "none"


def _tidy(shape: tuple[int, ...], dtype: DType, strides: tuple[int, ...]) -> ConcreteTensor:
    """Return a tensor whose axes of size 1 have the strides of a contiguous tensor, if all other axes have."""
    plain = contiguous_strides(shape)
    if all(size == 1 or own == usual for size, own, usual in zip(shape, strides, plain, strict=True)):
        strides = plain
    return ConcreteTensor(shape=shape, dtype=dtype, strides=strides)


def give(op: Op, inputs: Mapping[str, ConcreteTensor], scalars: Mapping[str, Scalar]) -> dict[str, ConcreteTensor]:
    """Return the shapes that the op's reference returns, computed on meta tensors.

    Raises:
        NotImplementedError: the reference reads the values of its tensors.
    """
    tensors = {
        name: torch.empty_strided(t.shape, t.strides, dtype=getattr(torch, t.torch_dtype_name), device="meta")
        for name, t in inputs.items()
    }
    try:
        results = op.call(tensors, op.scalar_defaults | dict(scalars))
    except RuntimeError as error:
        if "meta tensor" in str(error):
            raise NotImplementedError(str(error)) from error
        raise
    return {
        name: _tidy(tuple(result.shape), DTYPES[str(result.dtype).removeprefix("torch.")], result.stride())
        for name, result in zip(op.outputs, results, strict=True)
    }
