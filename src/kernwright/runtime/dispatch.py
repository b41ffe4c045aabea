"""Dispatcher: runs an op with the implementation that the user asked for, or with the best one that takes the call.

An explicit request that cannot be met is an error that names the requirement. An automatic choice may fall back to the
reference, and says why once; `strict` makes that an error too. Once an implementation is chosen its errors are the
caller's: nothing else is tried behind their back. But for one: that its library cannot be built shows only when it is
needed. Nothing has run by then, so it counts as a requirement that is not met, and is said once.
"""

from __future__ import annotations

import importlib
import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kernwright.core.errors import KernwrightError
from kernwright.core.op import Contract, Op
from kernwright.core.registry import SHIPPED
from kernwright.runtime.call import (
    BadArgument,
    Call,
    any_trains,
    is_compiling,
    is_dynamo_compiling,
    refuse_strange,
    run_reference,
)
from kernwright.runtime.implementation import Implementation, Launch
from kernwright.runtime.library import NotBuilt
from kernwright.runtime.outputs import (
    given_back,
    overlaps,
    refuse_gaps,
    refuse_overlaps,
    refuse_piled,
    share_memory,
    written,
)
from kernwright.runtime.preference import BEST, Backend, is_strict, known, preferred, wish_of_blocks
from kernwright.runtime.public_call.public_function import Option, as_op_arguments
from kernwright.runtime.triton.tuning import Found, configured

Out = Tensor | Sequence[Tensor] | None
Latest = tuple[Backend, Launch, tuple[Contract | None, ...]]  # whose foreign function, and the contracts that it keeps
NONE_YET: Latest = ("torch", lambda *arguments: False, ())
PACKAGE = __name__.partition(".")[0]
# Whose lines no reader of a warning can change: our own; the recorder's, which a capture puts into a program under a
# name of its own; and torch's, which stand between a module's call and its forward.
NOT_THE_READERS = (PACKAGE, f"_{PACKAGE}_capture", "torch")
MOST_REMEMBERED = 4096  # choices of one op: more shapes than a program has, unless every call brings its own


class CannotRun(KernwrightError):
    """No implementation that was asked for takes the call."""


class Fallback(UserWarning):
    """The reference runs in a kernel's place, or another kernel in that of one that cannot be built."""


@dataclass(frozen=True)
class Answer:
    """One implementation's answer to a call: that it takes it, or why not."""

    implementation: Implementation
    refusal: str | None
    configured: Found | None = None
    wanted: Backend | None = None
    unbuilt: NotBuilt | None = None

    @classmethod
    def of(
        cls,
        own: Implementation,
        call: Call,
        contract: Contract | None,
        configured: Found | None = None,
        wanted: Backend | None = None,
    ) -> Answer:
        try:
            return cls(own, own.refusal(call, contract), configured, wanted)
        except NotBuilt as problem:
            return cls(own, problem.in_short, configured, wanted, problem)

    @property
    def fits(self) -> bool:
        """Whether it would run, were no better one there."""
        return self.refusal is None and self.wanted in (None, self.implementation.backend)

    def __str__(self) -> str:
        how = f", {self.configured}" if self.configured and not self.refusal else ""
        return f"{self.implementation}: {self.refusal or 'takes it'}{how}"


@dataclass(frozen=True)
class Explanation:
    """What would run, and what every implementation says to the call."""

    op: str
    chosen: Implementation | None
    preferred: Backend | None
    answers: tuple[Answer, ...]

    def __str__(self) -> str:
        what = str(self.chosen) if self.chosen else "an error"
        wish = f", as {self.preferred} is preferred" if self.preferred else ""
        if not self.chosen and not self.preferred:
            wish = ", as strict lets no reference stand in for a kernel"
        return "\n".join([f"{self.op}: {what}{wish}", *(f"  {answer}" for answer in self.answers)])


def _callers_level() -> int:
    """For a warning: how far up the line is that somebody else wrote, and can change."""
    level, frame = 1, inspect.currentframe()
    while frame is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] in NOT_THE_READERS:
        level, frame = level + 1, frame.f_back
    return level - 1


class Dispatcher:
    """One op and all ways to run it, best first. The reference is the last, and takes every call that is right at all.

    `check` raises BadArgument for what the op itself cannot take. `option` is the keyword that only the public function
    has.
    """

    def __init__(
        self,
        op: Op,
        implementations: Sequence[Implementation] = (),
        check: Callable[[Call], None] | None = None,
        option: Option | None = None,
    ) -> None:
        self.op = op
        self.implementations = (
            *implementations,
            Implementation(backend="torch", contract="exact", load=lambda: reference_function(op)),
        )
        self._check, self._option = check, option
        self.__name__, self.__doc__ = op.name, op.reference.__doc__  # as a function of `kernwright.ops`
        self._told: set[str] = set()
        self._chosen: dict[Any, Implementation] = {}  # by what calls have in common
        self._latest = NONE_YET

    def __call__(
        self,
        *arguments: Any,
        backend: Backend | None = None,
        contract: Contract | None = None,
        out: Out = None,
        **named: Any,
    ) -> Any:
        if is_compiling() and len(self.implementations) == 1:
            _refuse_unknown(contract)
            block, _ = wish_of_blocks(is_dynamo_compiling())
            check_reference_alone(self.op.name, backend or block, None, "it has no other implementation")
            return reference_function(self.op)(*arguments, **named, out=out)  # there is nothing to choose, and to hide
        call = Call.of(self.op, arguments, named)
        return self.run(*call.parts, backend, contract, out)

    def run_positional(
        self, arguments: tuple[Any, ...], backend: Backend | None, contract: Contract | None, out: Out
    ) -> Any:
        """Run a call with all arguments of the op by position, as a public function hands them on."""
        count = len(self.op.tensor_parameters)
        scalars = dict(zip(self.op.scalar_defaults, arguments[count:], strict=True))
        return self(*arguments[:count], backend=backend, contract=contract, out=out, **scalars)

    def __repr__(self) -> str:
        return f"<kernwright.ops.{self.op.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _shipped, (self.op.name,)

    def __deepcopy__(self, memo: dict[int, Any]) -> Dispatcher:
        return self

    def run(
        self,
        tensors: Sequence[Tensor | None],
        scalars: Mapping[str, Any],
        backend: Backend | None = None,
        contract: Contract | None = None,
        out: Out = None,
    ) -> Any:
        """A call with every tensor in its place and every scalar by its name, given or not.

        A call like one before is neither checked nor chosen for again: both take longer than a kernel.
        """
        # Read once: by another thread's doing they may be others a line later, and what is remembered must be of one
        # reading.
        wanted, strictness = backend or preferred(), is_strict()
        likeness: tuple[Any, ...] | None
        try:
            likeness = _likeness(tensors, scalars, wanted, contract, strictness)
            chosen = self._chosen.get(likeness)
        except (TypeError, RuntimeError):  # a list in a number's place, a tensor without strides: the check names it
            likeness = chosen = None
        if chosen is None:
            call = self.call(tensors, scalars)
            self.check(call)
            chosen = self.choose(call, wanted, contract, strictness)
            # While a graph is captured some cannot be chosen that will be afterwards.
            if likeness is not None and not (call.first.is_cuda and torch.cuda.is_current_stream_capturing()):
                if len(self._chosen) >= MOST_REMEMBERED:
                    self._chosen.clear()
                self._chosen[likeness] = chosen
        elif self.op.inplace:  # calls that are alike may lie elsewhere
            refuse_overlaps(self.op, self.call(tensors, scalars).tensors)
        first = tensors[0]
        assert first is not None
        try:
            if out is None:
                result = chosen.function(*tensors, **scalars)
            else:
                self.check_out(first, tensors, out)
                result = chosen.function(*tensors, **scalars, out=out)
        except NotBuilt:
            self._chosen.pop(likeness, None)
            if wanted is not None or Answer.of(chosen, self.call(tensors, scalars), contract).unbuilt is None:
                raise
            return self.run(tensors, scalars, backend, contract, out)
        if torch.is_grad_enabled() and chosen.backend != "torch" and (out is not None or self.op.inplace):
            written((*_listed(out), *self._changed(tensors)))
        if chosen.launch is not None and (launch := chosen.launch(first.device, first.dtype)) is not None:
            self._latest = chosen.backend, launch, self._kept(chosen)
        return result

    def _kept(self, chosen: Implementation) -> tuple[Contract | None, ...]:
        """Return the contracts for which later calls may reuse this implementation."""
        if chosen.contract == "close":
            return None, "close"
        return (None, "close", "exact") if self.op.contract == "exact" else ("exact",)

    def latest(self, backend: Backend | None, contract: Contract | None) -> Launch | None:
        """The foreign function that the last call ended in, if the next may end there too without a look at its shapes.

        It looks at tensors itself, device and dtype among the rest, and refuses what is not for it; a preference, a
        contract and a gradient it cannot know of. To read all that from Python would cost more than all else here.
        """
        own, launch, contracts = self._latest
        return launch if contract in contracts and (backend or preferred()) in (None, own) else None

    def call(self, tensors: Sequence[Any], scalars: Mapping[str, Any]) -> Call:
        """As `run` is given them."""
        names = (parameter.name for parameter in self.op.tensor_parameters)
        return Call(self.op, {**dict(zip(names, tensors, strict=True)), **scalars})

    def check(self, call: Call) -> None:
        call.check()
        if self._check is not None:
            self._check(call)
        if self.op.inplace:
            refuse_overlaps(self.op, call.tensors)

    def choose(self, call: Call, wanted: Backend | None, contract: Contract | None, strictness: bool) -> Implementation:
        _refuse_unknown(contract, wanted)
        refused: list[Answer] = []
        for own in self.implementations:
            if wanted in (None, own.backend):
                answer = Answer.of(own, call, contract)
                if answer.refusal is None:
                    if wanted is None and (own.backend == "torch" or any(other.unbuilt for other in refused)):
                        self._fell_back(call, own, refused, strictness)
                    return own
                refused.append(answer)
        _raise_unbuilt(refused)
        reasons = "; ".join(map(str, refused)) or f"it has no {wanted} implementation"
        raise CannotRun(
            f"{self.op.name} cannot run on {wanted}: {reasons}",
            f"change what it names, or ask for another backend ({', '.join(self.backends)})",
        )

    @property
    def backends(self) -> list[str]:
        return list(dict.fromkeys(own.backend for own in self.implementations))

    def explain(
        self,
        *arguments: Any,
        backend: Backend | None = None,
        contract: Contract | None = None,
        out: Out = None,
        **named: Any,
    ) -> Explanation:
        """Raises what the call would raise for an argument that is wrong."""
        wanted = backend or preferred()
        answers = tuple(self._answers(self._public_call(arguments, named), wanted, contract))
        chosen = next((answer.implementation for answer in answers if answer.fits), None)
        if out is not None:
            self._foresee_out(self._public_call(arguments, named), chosen, out)
        if chosen is self.implementations[-1] and len(answers) > 1 and wanted is None and is_strict():
            chosen = None
        return Explanation(self.op.name, chosen, wanted, answers)

    def answers(
        self, *arguments: Any, backend: Backend | None = None, contract: Contract | None = None, **named: Any
    ) -> Iterator[Answer]:
        """What implementations say to a call, best first. Whoever stops at the one that fits does not load the rest."""
        return self._answers(self._public_call(arguments, named), backend or preferred(), contract)

    def _answers(self, call: Call, wanted: Backend | None, contract: Contract | None) -> Iterator[Answer]:
        self.check(call)
        _refuse_unknown(contract, wanted)
        for own in self.implementations:
            yield Answer.of(own, call, contract, self._configured(own, call), wanted)

    def _public_call(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> Call:
        arguments, named = as_op_arguments(self.op, self._option, arguments, named)
        return Call.of(self.op, arguments, named)

    def _foresee_out(self, call: Call, chosen: Implementation | None, out: Out) -> None:
        """All that a call says of its outputs, by results that have a shape and no memory."""
        tensors, scalars = call.parts
        self.check_out(call.first, tensors, out)
        meta = [None if own is None else own.detach().to("meta") for own in tensors]
        check_results(self.op, self.op.reference(*meta, **scalars), out)
        if chosen is not None and chosen.backend != "torch":
            refuse_gaps(self.op, _listed(out))

    def _configured(self, own: Implementation, call: Call) -> Found | None:
        """A kernel of another contract than the op's own has one configuration alone: its bits depend on it."""
        return configured(call) if (own.backend, own.contract) == ("triton", self.op.contract) else None

    def _fell_back(self, call: Call, onto: Implementation, refusals: Sequence[Answer], strictness: bool) -> None:
        if not refusals:
            return  # there is nothing else that could have run
        reasons = "; ".join(map(str, refusals))
        if strictness and onto.backend == "torch":
            _raise_unbuilt(refusals)
            raise CannotRun(
                f"{self.op.name} would run its reference: {reasons}", "see kernwright.explain, or leave strict off"
            )
        # What trains runs the reference by design, call after call: that is nothing to warn of.
        if reasons not in self._told and not call.needs_gradient:
            self._told.add(reasons)
            how = "its reference" if onto.backend == "torch" else f"on {onto}"
            warnings.warn(f"{self.op.name} runs {how}: {reasons}", Fallback, stacklevel=_callers_level())

    def _changed(self, tensors: Sequence[Tensor | None]) -> Iterator[Tensor]:
        for parameter, tensor in zip(self.op.tensor_parameters, tensors, strict=True):
            if parameter.name in self.op.inplace and tensor is not None:
                yield tensor

    def check_out(self, first: Tensor, tensors: Sequence[Tensor | None], out: Out) -> None:
        """All but dtypes and shapes, which the one that runs holds against its results."""
        if not isinstance(out, Tensor | tuple | list):
            raise BadArgument("out", f"is a {type(out).__name__}, not a tensor or a list of them")
        given = _listed(out)
        if len(given) != len(self.op.outputs):
            raise BadArgument("out", f"has {len(given)} tensor(s), {self.op.name} gives {len(self.op.outputs)}")
        if any_trains(tensors):
            raise BadArgument("out", "cannot be written where an input needs a gradient")
        if any_trains(given):
            raise BadArgument("out", "needs a gradient, and cannot be written", "pass its detach()")
        for number, (name, tensor) in enumerate(zip(self.op.outputs, given, strict=True)):
            if not isinstance(tensor, Tensor):
                raise BadArgument("out", f"{name} is a {type(tensor).__name__}, not a tensor")
            refuse_strange("out", tensor, name)
            if tensor.is_quantized:
                raise BadArgument("out", f"{name} is {tensor.dtype}, which no result has")
            if tensor.device != first.device:
                raise BadArgument("out", f"{name} is on {tensor.device}, the inputs are on {first.device}")
            refuse_piled("out", tensor, name)
            for twin, other in zip(self.op.outputs[:number], given, strict=False):
                if other is tensor or share_memory(other, tensor):
                    what = "is the tensor" if other is tensor else "lies in the memory"
                    raise BadArgument("out", f"{name} {what} of {twin}, too", "pass one for each")
            for parameter, own in zip(self.op.tensor_parameters, tensors, strict=True):
                if isinstance(own, Tensor) and overlaps(self.op, parameter.name, own, tensor):
                    raise BadArgument("out", f"{name} overlaps {parameter.name}", "pass memory of its own")


def _shipped(name: str) -> Dispatcher:
    own: Dispatcher = importlib.import_module(f"{SHIPPED}.catalog").dispatcher(name)  # runtime imports no op by itself
    return own


def _raise_unbuilt(refusals: Sequence[Answer]) -> None:
    """Its remedy is better than any that a requirement could have."""
    for answer in refusals:
        if answer.unbuilt is not None:
            raise answer.unbuilt from None  # a call that has just found it out is no further reason


def check_reference_alone(op: str, backend: str | None, strict: bool | None, why: str) -> None:
    """Raise if anything but the reference was asked for, where only the reference can be a part of a graph.

    The error is one of Python's, since torch.compile cannot trace ours.
    """
    if backend not in (None, BEST, "torch"):
        raise RuntimeError(f"{op} cannot run on {backend}: {why}")
    if strict:
        raise RuntimeError(f"{op} would run its reference: {why}")


def _refuse_unknown(contract: str | None, backend: str | None = None) -> None:
    if contract not in (None, "exact", "close"):
        raise KernwrightError(f"contract: there is no contract {contract!r}", "ask for 'exact' or 'close'")
    if backend is not None:
        known(backend)


def _likeness(
    tensors: Sequence[Tensor | None],
    scalars: Mapping[str, Any],
    wanted: Backend | None,
    contract: Contract | None,
    strictness: bool,
) -> tuple[Any, ...]:
    """All that a check or a requirement may look at. What is no tensor is found out by the check."""
    return (
        wanted,
        contract,
        strictness,
        any_trains(tensors),
        *scalars.values(),
        *(
            (value.shape, value.stride(), value.dtype, value.device, value.is_neg())
            if isinstance(value, Tensor)
            else repr(value)
            for value in tensors
        ),
    )


def _listed(tensors: Out) -> list[Tensor]:
    return [tensors] if isinstance(tensors, Tensor) else list(tensors or ())


def _described(tensor: Tensor) -> str:
    return f"{tensor.dtype} {list(tensor.shape)}"


def check_results(op: Op, result: Out, out: Out) -> None:
    """That what was given has the dtypes and shapes of what came out: copying would cast and spread it."""
    for name, own, given in zip(op.outputs, _listed(result), _listed(out), strict=True):
        if (own.dtype, own.shape) != (given.dtype, given.shape):
            raise BadArgument("out", f"{name} is {_described(given)}, not {_described(own)}")


def _narrow(op: Op, tensors: Sequence[Any], error: RuntimeError) -> BadArgument | None:
    """Floats of eight bits are the reference's where torch computes with them, as with a weight that is cast first."""
    for parameter, own in zip(op.tensor_parameters, tensors, strict=False):
        if isinstance(own, Tensor) and own.is_floating_point() and own.itemsize == 1:
            said = str(error).partition("\n")[0]
            return BadArgument(parameter.name, f"is {own.dtype}: {said}", "pass its to(torch.bfloat16)")
    return None


def reference_function(op: Op) -> Callable[..., Any]:
    """The reference, with `out=`."""

    def reference(*arguments: Any, out: Out = None, **scalars: Any) -> Any:
        try:
            result = run_reference(op, arguments, scalars)
        except RuntimeError as error:
            if (narrow := _narrow(op, arguments, error)) is None:
                raise
            raise narrow from error
        if out is None:
            return result
        check_results(op, result, out)
        with torch.no_grad():
            for own, given in zip(_listed(result), _listed(out), strict=True):
                given.copy_(own)
        return given_back(_listed(out))

    return reference
