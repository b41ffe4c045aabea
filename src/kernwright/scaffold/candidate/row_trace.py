"""RowTrace: records the computation of an op by running its definition on stand-ins for tensors.

The definition is run once for each variant: which optional tensors are given, and the values of scalars that are texts
or truth values. Definitions that do anything but arithmetic on elements and means over the last axis are refused, such
as reductions over other axes, concatenations, indices, or other shapes.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kernwright.scaffold.candidate.traced_op import (
    FLOAT32,
    DtypeOf,
    NotPerRow,
    RowStore,
    RowValue,
    TracedOp,
    TracedVariant,
    ValueKind,
)


def traced_op(op: Any, given: Sequence[frozenset[str]], choices: Sequence[Mapping[str, str | bool]]) -> TracedOp:
    """Trace an op for the variants that its rows use.

    Args:
        op: the op (`kernwright.core.op.Op`).
        given: the sets of optional tensors that rows have.
        choices: the values of scalars that are texts or truth values.

    Raises:
        NotPerRow: the op is neither elementwise nor a reduction over the last axis.
    """
    variants = [RowTrace(op).variant(present, chosen) for present, chosen in itertools.product(given, choices)]
    return TracedOp(
        name=op.name,
        tensors=tuple((each.name, each.optional) for each in op.tensor_parameters),
        scalars=tuple(op.scalar_defaults.items()),
        outputs=tuple(op.outputs),
        inplace=tuple(op.inplace),
        contract=op.contract,
        variants=tuple(each for each in variants if each),
    )


@dataclass
class RowTrace:
    op: Any
    values: list[RowValue] = field(default_factory=list)
    stores: dict[str, RowValue] = field(default_factory=dict)
    views: dict[str, str] = field(default_factory=dict)
    used_plain: set[str] = field(default_factory=set)

    def variant(self, present: frozenset[str], chosen: Mapping[str, str | bool]) -> TracedVariant | None:
        """Return the variant, or None if the definition refuses this combination of arguments."""
        tensors = [
            None if each.optional and each.name not in present else _TracedRow.of_argument(self, each.name)
            for each in self.op.tensor_parameters
        ]
        scalars = {name: chosen.get(name, _Scalar(name)) for name in self.op.scalar_defaults}
        try:
            with _definitions_patched(self.op.reference):
                result = self.op.reference(*tensors, **scalars)
        except NotPerRow:
            raise
        except ValueError:
            return None
        except Exception as error:
            raise NotPerRow(self.op.name, f"a step of its definition is not supported ({error})") from None
        results = [] if result is None else [result] if isinstance(result, _TracedRow) else list(result)
        stores = [RowStore(name, value) for name, value in self.stores.items()]
        for name, each in zip(self.op.outputs, results, strict=True):
            if each.value.kind == "row":
                self.refuse(f"the output {name} is one number per row")
            stores.append(RowStore(name, each.value))
        optional = {each.name for each in self.op.tensor_parameters if each.optional}
        return TracedVariant(
            tuple(sorted(present & optional)), tuple(sorted(chosen.items())), self._used(stores), tuple(stores),
            tuple(sorted(self.views.items())),
        )  # fmt: skip

    def _used(self, stores: Sequence[RowStore]) -> tuple[RowValue, ...]:
        """Return the values that the stored ones need. Definitions also look at dtypes of values that they drop."""
        used: set[RowValue] = set()
        pending = [store.value for store in stores]
        while pending:
            value = pending.pop()
            if value not in used:
                used.add(value)
                pending += [each for each in value.args if isinstance(each, RowValue)]
        return tuple(value for value in self.values if value in used)

    def refuse(self, reason: str) -> None:
        raise NotPerRow(self.op.name, reason)

    def add(self, op: str, args: tuple[RowValue | float | str, ...], dtype: DtypeOf, kind: ValueKind) -> RowValue:
        value = RowValue(op, args, dtype, kind, len(self.values))
        self.values.append(value)
        return value


class _Unknown:
    """A value that only a call has. The steps of the computation must not depend on it."""

    meaning = "the values of tensors"

    def __eq__(self, other: object) -> bool:
        raise TypeError(f"its steps depend on {self.meaning}")

    def __bool__(self) -> bool:
        raise TypeError(f"its steps depend on {self.meaning}")

    __hash__ = None  # type: ignore[assignment]


class _Scalar(_Unknown):
    """A number that a call gives."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.meaning = f"the number {name}; a text or a truth value may choose them"


class _AnyRank(_Unknown):
    """The number of axes, or the size of an axis. Only the layout of modulations may depend on it."""

    meaning = "the number of axes"


class _Shape(_Unknown):
    """The shape of a stand-in: only its last axis may be asked for, as the axis of a norm."""

    meaning = "the sizes of axes"

    def __getitem__(self, place: Any) -> Any:
        if place == -1:
            return _LastAxis()
        if isinstance(place, slice) and place == slice(-1, None):
            return (_LastAxis(),)
        raise TypeError("it asks for the size of an axis other than the last one")


class _LastAxis(_Unknown):
    meaning = "the size of the last axis"


class _TracedRow(_Unknown):
    """Stand-in for a tensor in a definition."""

    def __init__(self, trace: RowTrace, value: RowValue, argument: str = "") -> None:
        self.trace = trace
        self.value = value
        self.argument = argument

    @classmethod
    def of_argument(cls, trace: RowTrace, name: str, view: str = "") -> _TracedRow:
        trace.views.setdefault(name, "")
        if view:
            if name in trace.used_plain or trace.views[name] not in ("", view):
                trace.refuse(f"{name} is viewed in two ways")
            trace.views[name] = view
        dtype = DtypeOf("argument", name)
        found = next((each for each in trace.values if each.op == "load" and each.args == (name,)), None)
        return cls(trace, found or trace.add("load", (name,), dtype, "vector"), name)

    def note_use(self) -> None:
        """Remember that an argument is used without a view. A later view of it would be a second layout."""
        if self.argument and not self.trace.views[self.argument]:
            self.trace.used_plain.add(self.argument)

    @property
    def dtype(self) -> DtypeOf:
        return self.value.dtype

    @property
    def shape(self) -> _Shape:
        return _Shape()

    @property
    def ndim(self) -> _AnyRank:
        return _AnyRank()

    @classmethod
    def __torch_function__(
        cls, function: Callable[..., Any], _types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name = function.__name__
        if name in _FUNCTIONS:
            return _FUNCTIONS[name](*args, **(kwargs or {}))  # a stand-in, or what a definition makes of one
        raise TypeError(f"it calls torch's {name}")

    def _with(self, op: str, others: Sequence[Any], dtype: DtypeOf | None = None) -> _TracedRow:
        values: list[RowValue | float | str] = []
        own, kind = dtype, self.value.kind
        for each in (self, *others):
            if isinstance(each, _TracedRow):
                each.note_use()
                values.append(each.value)
                kind = "vector" if "vector" in (kind, each.value.kind) else kind
                own = each.dtype if own is None else own if dtype else _promoted(own, each.dtype)
            elif isinstance(each, _Scalar):
                values.append(each.name)
            elif isinstance(each, int | float):
                if not math.isfinite(each):
                    raise TypeError(f"it computes with the number {each}")
                values.append(float(each))
            else:
                raise TypeError(f"{op} with {type(each).__name__}")
        return _TracedRow(self.trace, self.trace.add(op, tuple(values), own or self.dtype, kind))

    def __add__(self, other: Any) -> _TracedRow:
        return self._with("add", [other])

    def __sub__(self, other: Any) -> _TracedRow:
        return self._with("sub", [other])

    def __mul__(self, other: Any) -> _TracedRow:
        return self._with("mul", [other])

    def __truediv__(self, other: Any) -> _TracedRow:
        return self._with("div", [other])

    def __rsub__(self, other: Any) -> _TracedRow:
        return (-self)._with("add", [other])

    def __neg__(self) -> _TracedRow:
        return self._with("neg", [])

    def __pow__(self, other: Any) -> _TracedRow:
        return self.pow(other)

    __radd__ = __add__
    __rmul__ = __mul__

    def __iadd__(self, other: Any) -> _TracedRow:
        return self.copy_(self + other)

    def __isub__(self, other: Any) -> _TracedRow:
        return self.copy_(self - other)

    def __imul__(self, other: Any) -> _TracedRow:
        return self.copy_(self * other)

    def __itruediv__(self, other: Any) -> _TracedRow:
        return self.copy_(self / other)

    def copy_(self, other: _TracedRow) -> _TracedRow:
        if not self.argument:
            raise TypeError("it changes a tensor that is no argument")
        self.value = other.to(DtypeOf("argument", self.argument)).value
        self.trace.stores[self.argument] = self.value
        return self

    def pow(self, exponent: Any) -> _TracedRow:
        if exponent != 2:
            raise TypeError(f"it takes the power {exponent}")
        return self._with("mul", [self])

    def square(self) -> _TracedRow:
        return self.pow(2)

    def mean(self, dim: Any = None, keepdim: bool = False, *, axis: Any = None) -> _TracedRow:
        if (dim if axis is None else axis) != -1 or not keepdim or self.value.kind != "vector":
            raise TypeError("it takes a mean over other axes than the last one")
        return _TracedRow(self.trace, self.trace.add("mean", (self.value,), self.dtype, "row"))

    def to(self, dtype: Any, copy: bool = False) -> _TracedRow:
        if not isinstance(dtype, DtypeOf):
            raise TypeError(f"it converts to {dtype}")
        if dtype == self.dtype:
            return self
        return _TracedRow(self.trace, self.trace.add("round", (self.value,), dtype, self.value.kind))

    def __getitem__(self, place: Any) -> _TracedRow:
        if place == (Ellipsis, None) and self.argument:
            return _TracedRow.of_argument(self.trace, self.argument, "new_axis")
        raise TypeError("it indexes a tensor")

    def __getattr__(self, name: str) -> Any:
        if name in UNARY_STEPS:
            return lambda: self._with(name, [])
        raise TypeError(f"it calls the tensor method {name}")


def _promoted(first: DtypeOf, second: DtypeOf) -> DtypeOf:
    if first == second:
        return first
    return DtypeOf("promoted", parts=(first, second))


def _wide(x: _TracedRow) -> _TracedRow:
    return x.to(_promoted(x.dtype, FLOAT32))


def _over_tokens(modulation: _TracedRow, _x: _TracedRow) -> _TracedRow:
    if not modulation.argument:
        raise TypeError("it lays a computed modulation over tokens")
    return _TracedRow.of_argument(modulation.trace, modulation.argument, "over_tokens")


def _layer_norm(x: _TracedRow, _width: Any, weight: Any = None, bias: Any = None, eps: Any = 1e-5) -> _TracedRow:
    wide = x.to(FLOAT32)
    centred = wide - wide.mean(-1, keepdim=True)
    normed: _TracedRow = centred * (centred.pow(2).mean(-1, keepdim=True) + eps)._with("rsqrt", [])
    return _affine(normed, weight, bias).to(x.dtype)


def _rms_norm(x: _TracedRow, _width: Any, weight: Any = None, eps: Any = None) -> _TracedRow:
    if eps is None:
        raise TypeError("it leaves eps to torch")
    wide = x.to(FLOAT32)
    normed = wide * (wide.pow(2).mean(-1, keepdim=True) + eps)._with("rsqrt", [])
    return _affine(normed, weight, None).to(x.dtype)


def _gelu(x: _TracedRow, approximate: str = "none") -> _TracedRow:
    wide = x.to(FLOAT32)
    if approximate == "tanh":
        share = ((wide + wide * wide * wide * 0.044715) * math.sqrt(2 / math.pi))._with("tanh", [])
    else:
        share = (wide * math.sqrt(0.5))._with("erf", [])
    return (wide * 0.5 * (share + 1.0)).to(x.dtype)


def _affine(normed: _TracedRow, weight: _TracedRow | None, bias: _TracedRow | None) -> _TracedRow:
    scaled = normed if weight is None else normed * weight.to(FLOAT32)
    return scaled if bias is None else scaled + bias.to(FLOAT32)


def _unary(name: str, x: _TracedRow, inplace: bool = False) -> _TracedRow:
    found = x._with(name, [])
    return x.copy_(found) if inplace else found


UNARY_STEPS = ("rsqrt", "sqrt", "exp", "tanh", "erf", "sigmoid", "relu", "abs", "neg", "silu")
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: partial(_unary, name) for name in UNARY_STEPS},
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv,
    "square": lambda x: x.square(), "pow": lambda x, exponent: x.pow(exponent),
    "layer_norm": _layer_norm, "rms_norm": _rms_norm, "gelu": _gelu,
}  # fmt: skip


@contextmanager
def _definitions_patched(reference: Callable[..., Any]) -> Iterator[None]:
    """Replace the helpers that look at dtypes and shapes, in the module of a definition and in the shared helpers."""
    from kernwright.core import norms, rounding

    patches = {"wide": _wide, "over_tokens": _over_tokens}
    originals = {name: getattr(rounding, name) for name in patches}
    changed = [
        (space, key, value)
        for space in (reference.__globals__, vars(norms))
        for key, value in list(space.items())
        for name, original in originals.items()
        if value is original
    ]
    try:
        for space, key, value in changed:
            space[key] = patches[next(name for name, original in originals.items() if original is value)]
        yield
    finally:
        for space, key, value in changed:
            space[key] = value
