"""Traffic: the fewest bytes that the operators of a chain must move if one kernel does their work.

A trace has the shapes, dtypes and strides of every operator's inputs. It has neither the results nor the data flow.
A result is inferred from the inputs. An input is taken for the result of an earlier operator of the chain if it has as
many elements; otherwise it comes from outside and must be read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kernwright.diagnose.chain import OpCall

_BYTES = {
    "bfloat16": 2, "half": 2, "float16": 2, "float": 4, "float32": 4, "double": 8, "float64": 8, "int8": 1, "uint8": 1,
    "signed char": 1, "unsigned char": 1, "char": 1, "bool": 1, "int": 4, "int32": 4, "long": 8, "long int": 8,
    "int64": 8, "short": 2, "float8_e4m3fn": 1, "float8_e5m2": 1, "complex<float>": 8, "complex<double>": 16,
    "complex<half>": 4,
}  # fmt: skip
# Numbers of torch.dtype in recorded arguments.
_DTYPE_OF_NUMBER = {"15": 2, "6": 4, "5": 2, "7": 8, "9": 8}
_REDUCES = frozenset({"mean", "sum", "var", "amax", "norm"})
NORMS = frozenset({"layer_norm", "rms_norm", "group_norm"})
_CASTS = frozenset({"to", "copy"})


@dataclass(frozen=True, slots=True)
class TensorArgument:
    """One tensor argument of an operator as the trace has it."""

    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...] | None = None

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def element_bytes(self) -> int:
        return _BYTES.get(self.dtype, 4)

    @property
    def bytes(self) -> int:
        """The bytes that reading it moves. A dimension with stride 0 is read once."""
        if self.strides is None:
            return self.elements * self.element_bytes
        sizes = (size for size, stride in zip(self.shape, self.strides, strict=True) if stride != 0)
        return math.prod(sizes) * self.element_bytes

    @property
    def extent(self) -> int:
        """Elements from the first to the last in memory."""
        if self.strides is None:
            return self.elements
        return 1 + sum((size - 1) * abs(stride) for size, stride in zip(self.shape, self.strides, strict=True))

    @property
    def is_dense(self) -> bool:
        return self.extent == self.elements


def tensors_of(call: OpCall) -> list[TensorArgument] | None:
    """Return the tensor arguments of a call, with those of lists; None if the trace has no shapes."""
    if call.op is None or not call.op.inputs:
        return None
    dims, types, strides, _ = (*call.op.inputs, None, None, None, None)[:4]
    if not isinstance(dims, list):
        return None
    found: list[TensorArgument] = []
    for place, shape in enumerate(dims):
        kind = str(types[place]) if isinstance(types, list) and place < len(types) else ""
        steps = strides[place] if isinstance(strides, list) and place < len(strides) else None
        found += _tensors(shape, kind, steps)
    return found or None


def _tensors(shape: Any, kind: str, strides: Any) -> list[TensorArgument]:
    if not isinstance(shape, list) or not shape:
        return []
    if isinstance(shape[0], list):
        several = strides if isinstance(strides, list) and len(strides) == len(shape) else [None] * len(shape)
        return [t for own, steps in zip(shape, several, strict=True) for t in _tensors(own, kind, steps)]
    if not all(isinstance(size, int) for size in shape):
        return []
    fits = isinstance(strides, list) and len(strides) == len(shape) and all(isinstance(s, int) for s in strides)
    return [TensorArgument(tuple(shape), dtype_of(kind), tuple(strides) if fits else None)]


def dtype_of(kind: str) -> str:
    """Return the name of a dtype without its C++ type: `bfloat16` for `c10::BFloat16`."""
    return kind.replace("c10::", "").strip().lower()


def elements_given(call: OpCall) -> set[int] | None:
    """Return the sizes of a call's tensors; None if the trace has no shapes."""
    tensors = tensors_of(call)
    return None if tensors is None else {tensor.elements for tensor in tensors}


def elements_made(call: OpCall) -> int | None:
    """Return the inferred number of elements of a call's result; None if the trace has no shapes."""
    result = result_of(call)
    return None if result is None else result.elements


def result_of(call: OpCall) -> TensorArgument | None:
    """Infer the result of a call."""
    tensors = tensors_of(call)
    if tensors is None:
        return None
    first = max(tensors, key=lambda tensor: len(tensor.shape))
    dtype = max(tensors, key=lambda tensor: tensor.element_bytes).dtype
    if call.word == "cat":
        return TensorArgument((sum(tensor.elements for tensor in tensors),), tensors[0].dtype)
    if call.word in _REDUCES:
        return TensorArgument((*first.shape[:-1], 1), dtype)
    if call.word in _CASTS:
        return TensorArgument(tensors[0].shape, _cast_to(call) or tensors[0].dtype)
    if call.word[:3] in ("add", "sub", "mul", "div"):
        shape = _broadcast([tensor.shape for tensor in tensors[:2]])
        wide = [tensor for tensor in tensors[:2] if len(tensor.shape) > 0] or tensors
        return TensorArgument(shape, max(wide, key=lambda tensor: tensor.element_bytes).dtype)
    return TensorArgument(tensors[0].shape, tensors[0].dtype)


def _cast_to(call: OpCall) -> str | None:
    concrete = call.op.inputs[3] if call.op is not None and len(call.op.inputs) > 3 else None
    if not isinstance(concrete, list):
        return None
    sizes = [_DTYPE_OF_NUMBER[str(value)] for value in concrete[1:3] if str(value) in _DTYPE_OF_NUMBER]
    return {2: "bfloat16", 4: "float", 8: "double"}[sizes[0]] if sizes else None


def _broadcast(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    longest = max(len(shape) for shape in shapes)
    padded = [(1,) * (longest - len(shape)) + shape for shape in shapes]
    return tuple(max(sizes) for sizes in zip(*padded, strict=True))


@dataclass(frozen=True, slots=True)
class Traffic:
    """The bytes that one kernel in place of a chain reads and writes."""

    reads: tuple[TensorArgument, ...]
    writes: tuple[TensorArgument, ...]

    @property
    def bytes(self) -> int:
        return sum(tensor.bytes for tensor in (*self.reads, *self.writes))


def traffic_of(calls: Sequence[OpCall], kept: Sequence[str] = ()) -> Traffic | None:
    """Infer the traffic of a chain; None if a call has no shapes.

    Args:
        kept: words of calls whose results are used after the chain, too, and so must be written.
    """
    reads: list[TensorArgument] = []
    made: list[_Made] = []
    usual = _usual_dtype(calls)
    for call in calls:
        tensors, result = tensors_of(call), result_of(call)
        if tensors is None or result is None:
            return None
        sources: list[_Made | None] = []
        for tensor in tensors[1:] if _fills_first(call) else tensors:
            own = _with_dtype(tensor, usual)
            source = _source(own, _usable(made, call.word), sources)
            sources.append(source)
            if source is None:
                reads.append(own)
            else:
                source.used = True
        made.append(_Made(_with_dtype(result, usual), call.word))
    writes = [each.result for each in made if not each.used or each.word in kept]
    return Traffic(tuple(_distinct(reads)), tuple(writes))


@dataclass(slots=True, eq=False)
class _Made:
    """A result within a chain, and whether a later operator uses it."""

    result: TensorArgument
    word: str
    used: bool = False


def _fills_first(call: OpCall) -> bool:
    """Return whether the first tensor is only written, such as the destination of `copy_`."""
    return call.op is not None and call.op.name.endswith("copy_")


def _usual_dtype(calls: Sequence[OpCall]) -> str:
    """Return the first dtype that is known. The trace has no dtypes for tensors of a list."""
    known = (tensor.dtype for call in calls for tensor in tensors_of(call) or () if tensor.dtype in _BYTES)
    return next(known, "bfloat16")


def _with_dtype(tensor: TensorArgument, usual: str) -> TensorArgument:
    return tensor if tensor.dtype in _BYTES else TensorArgument(tensor.shape, usual, tensor.strides)


def _usable(made: Sequence[_Made], word: str) -> Sequence[_Made]:
    """Leave out results of norms if the operator is a norm: two norms in a row belong to queries and keys."""
    return [each for each in made if each.word != word] if word in NORMS else made


def _source(tensor: TensorArgument, made: Sequence[_Made], taken: Sequence[_Made | None]) -> _Made | None:
    """Return the earlier result that a tensor is, or None.

    A result is used once, but a cast may be used again, and parts of a result may be views. `taken` has the results
    that the same operator already uses.
    """
    fitting = [each for each in made if each not in taken and _is_same(tensor, each.result)]
    fresh = [each for each in fitting if not each.used]
    whole = next(reversed(fresh or [each for each in fitting if each.word in _CASTS]), None)
    if whole is not None or tensor.is_dense:
        return whole
    parts = round(tensor.extent / max(tensor.elements, 1))
    return next((each for each in reversed(made) if each.result.elements == parts * tensor.elements), None)


def _is_same(tensor: TensorArgument, result: TensorArgument) -> bool:
    """Return whether a tensor may be a result. A view of complex numbers has half the elements and as many bytes."""
    if "complex" in tensor.dtype + result.dtype:
        return result.bytes == tensor.bytes
    return result.elements == tensor.elements


def _distinct(tensors: Sequence[TensorArgument]) -> list[TensorArgument]:
    """Leave out tensors that are views of a part of another one, and small ones that are read again."""
    found: list[TensorArgument] = []
    for tensor in tensors:
        whole = (o for o in tensors if o.elements > tensor.elements and o.dtype == tensor.dtype)
        is_part = not tensor.is_dense and any(o.extent >= tensor.extent > o.elements // 2 for o in whole)
        if not is_part:
            found.append(tensor)
    return found
