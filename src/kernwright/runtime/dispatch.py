"""Dispatcher: runs an op with the requested implementation, or with the best one that takes the call.

An explicit request that cannot be met is an error that names the requirement. An automatic choice may fall back to the
reference, and warns once with the reason; `strict` turns that into an error. After an implementation was chosen, its
errors reach the caller, and no other implementation is tried. There is one exception: a failed build shows only when
the library is needed. Nothing has run by then, so it counts as a requirement that is not met.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from kernwright.core.errors import KernwrightError
from kernwright.core.op import Contract, Op
from kernwright.core.registry import SHIPPED
from kernwright.runtime.call import Call, any_trains, is_compiling, is_dynamo_compiling
from kernwright.runtime.choice.answer import Answer, raise_unbuilt
from kernwright.runtime.choice.explanation import Explanation
from kernwright.runtime.choice.fallback import CannotRun, warn_of_fallback
from kernwright.runtime.choice.given_outputs import Out, check_out, check_results, listed
from kernwright.runtime.choice.reference import check_reference_alone, reference_function
from kernwright.runtime.implementation import Implementation, Launch
from kernwright.runtime.library import NotBuilt
from kernwright.runtime.outputs import refuse_gaps, refuse_overlaps, written
from kernwright.runtime.preference import Backend, is_strict, known, preferred, wish_of_blocks
from kernwright.runtime.public_call.public_function import Option, as_op_arguments
from kernwright.runtime.triton.tuning import Found, configured

# The foreign function of the last call: its backend, the function, and the contracts that it keeps.
Latest = tuple[Backend, Launch, tuple[Contract | None, ...]]
NONE_YET: Latest = ("torch", lambda *arguments: False, ())
MOST_REMEMBERED = 4096  # choices of one op: more shapes than a program uses, unless every call brings a new one


class Dispatcher:
    """One op with its implementations, best first. The last one is the reference, which takes every valid call.

    `check` raises BadArgument for arguments that no implementation could take. `option` is the keyword that only the
    public function has.
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
        self.__name__, self.__doc__ = op.name, op.reference.__doc__  # a dispatcher can stand for its public function
        self._told: set[str] = set()  # reasons of fallbacks that were warned of
        self._chosen: dict[Any, Implementation] = {}  # the key is equal for calls with the same choice
        self._latest = NONE_YET

    def __call__(
        self,
        *arguments: Any,
        backend: Backend | None = None,
        contract: Contract | None = None,
        out: Out = None,
        **named: Any,
    ) -> Any:
        """Run a call, with the arguments of the op's definition."""
        if is_compiling() and len(self.implementations) == 1:
            _refuse_unknown(contract)
            block, _ = wish_of_blocks(is_dynamo_compiling())
            check_reference_alone(self.op.name, backend or block, None, "it has no other implementation")
            return reference_function(self.op)(*arguments, **named, out=out)  # traced as the chain
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
        """Run a call with all tensors by position and all scalars by name.

        The check and the choice take longer than a kernel, so calls that agree in everything that both look at share
        their outcome.
        """
        # Both are read once: another thread may change them meanwhile, and the choice is remembered for one reading.
        wanted, strictness = backend or preferred(), is_strict()
        key: tuple[Any, ...] | None
        try:
            key = _key(tensors, scalars, wanted, contract, strictness)
            chosen = self._chosen.get(key)
        except (TypeError, RuntimeError):  # a list instead of a number, a tensor without strides: the check names it
            key = chosen = None
        if chosen is None:
            call = self.call(tensors, scalars)
            self.check(call)
            chosen = self.choose(call, wanted, contract, strictness)
            # During the capture of a CUDA graph, some implementations refuse calls that they would take later.
            if key is not None and not (call.first.is_cuda and torch.cuda.is_current_stream_capturing()):
                if len(self._chosen) >= MOST_REMEMBERED:
                    self._chosen.clear()
                self._chosen[key] = chosen
        elif self.op.inplace:  # calls with the same key may differ in overlaps of memory
            refuse_overlaps(self.op, self.call(tensors, scalars).tensors)
        first = tensors[0]
        assert first is not None
        try:
            if out is None:
                result = chosen.function(*tensors, **scalars)
            else:
                check_out(self.op, first, tensors, out)
                result = chosen.function(*tensors, **scalars, out=out)
        except NotBuilt:
            self._chosen.pop(key, None)
            if wanted is not None or Answer.of(chosen, self.call(tensors, scalars), contract).unbuilt is None:
                raise
            return self.run(tensors, scalars, backend, contract, out)
        if torch.is_grad_enabled() and chosen.backend != "torch" and (out is not None or self.op.inplace):
            written((*listed(out), *self._changed(tensors)))
        if chosen.launch is not None and (launch := chosen.launch(first.device, first.dtype)) is not None:
            self._latest = chosen.backend, launch, self._kept(chosen)
        return result

    def _kept(self, chosen: Implementation) -> tuple[Contract | None, ...]:
        """Return the contracts for which later calls may reuse this implementation."""
        if chosen.contract == "close":
            return None, "close"
        return (None, "close", "exact") if self.op.contract == "exact" else ("exact",)

    def latest(self, backend: Backend | None, contract: Contract | None) -> Launch | None:
        """Return the foreign function that ran the last call, if its backend and contract suit the next call.

        The foreign function checks shapes, dtypes and devices itself and refuses a call that it cannot take, which is
        faster than checks in Python. It knows nothing of preferences and contracts, which are checked here, nor of
        gradients, which the caller checks.
        """
        own, launch, contracts = self._latest
        return launch if contract in contracts and (backend or preferred()) in (None, own) else None

    def call(self, tensors: Sequence[Any], scalars: Mapping[str, Any]) -> Call:
        """Return the Call for tensors and scalars as `run` takes them."""
        names = (parameter.name for parameter in self.op.tensor_parameters)
        return Call(self.op, {**dict(zip(names, tensors, strict=True)), **scalars})

    def check(self, call: Call) -> None:
        """Raise BadArgument for an argument that no implementation could take."""
        call.check()
        if self._check is not None:
            self._check(call)
        if self.op.inplace:
            refuse_overlaps(self.op, call.tensors)

    def choose(self, call: Call, wanted: Backend | None, contract: Contract | None, strictness: bool) -> Implementation:
        """Return the best implementation that takes a call. Raise CannotRun or NotBuilt where there is none."""
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
        raise_unbuilt(refused)
        reasons = "; ".join(map(str, refused)) or f"it has no {wanted} implementation"
        raise CannotRun(
            f"{self.op.name} cannot run on {wanted}: {reasons}",
            f"meet that requirement, or ask for another backend ({', '.join(self.backends)})",
        )

    @property
    def backends(self) -> list[str]:
        """Return the backends of this op, best first."""
        return list(dict.fromkeys(own.backend for own in self.implementations))

    def explain(
        self,
        *arguments: Any,
        backend: Backend | None = None,
        contract: Contract | None = None,
        out: Out = None,
        **named: Any,
    ) -> Explanation:
        """Return the implementation that a call would run, and the answer of every implementation. Nothing is launched.

        The arguments are those of the public function. Raise the error that the call would raise for a wrong argument.
        """
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
        """Yield the answers of the implementations to a call, best first. Each is asked when its answer is taken."""
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
        """Raise what a call would raise for its outputs. Its results are computed on the meta device."""
        tensors, scalars = call.parts
        check_out(self.op, call.first, tensors, out)
        meta = [None if own is None else own.detach().to("meta") for own in tensors]
        check_results(self.op, self.op.reference(*meta, **scalars), out)
        if chosen is not None and chosen.backend != "torch":
            refuse_gaps(self.op, listed(out))

    def _configured(self, own: Implementation, call: Call) -> Found | None:
        """Return the launch configuration of a Triton kernel; None for others.

        A kernel of another contract than the op's own has a fixed configuration, since its bits depend on it.
        """
        return configured(call) if (own.backend, own.contract) == ("triton", self.op.contract) else None

    def _fell_back(self, call: Call, onto: Implementation, refusals: Sequence[Answer], strictness: bool) -> None:
        """Warn of a fallback, once for each reason. Raise CannotRun if `strictness` forbids the reference."""
        if not refusals:
            return  # the op has no other implementation
        reasons = "; ".join(map(str, refusals))
        if strictness and onto.backend == "torch":
            raise_unbuilt(refusals)
            raise CannotRun(
                f"{self.op.name} would run its reference: {reasons}", "see kernwright.explain, or turn strict off"
            )
        # Only the reference has gradients. Modules warn of it (`nn/gradients.py`); a direct call is left alone.
        if reasons not in self._told and not call.needs_gradient:
            self._told.add(reasons)
            how = "its reference" if onto.backend == "torch" else f"on {onto}"
            warn_of_fallback(f"{self.op.name} runs {how}: {reasons}")

    def _changed(self, tensors: Sequence[Tensor | None]) -> Iterator[Tensor]:
        """Yield the tensors that a call of this op changes in place."""
        for parameter, tensor in zip(self.op.tensor_parameters, tensors, strict=True):
            if parameter.name in self.op.inplace and tensor is not None:
                yield tensor


def _shipped(name: str) -> Dispatcher:
    """Return the dispatcher of a shipped op, for pickle."""
    own: Dispatcher = importlib.import_module(f"{SHIPPED}.catalog").dispatcher(name)  # runtime imports no op by itself
    return own


def _refuse_unknown(contract: str | None, backend: str | None = None) -> None:
    if contract not in (None, "exact", "close"):
        raise KernwrightError(f"contract: there is no contract {contract!r}", "ask for 'exact' or 'close'")
    if backend is not None:
        known(backend)


def _key(
    tensors: Sequence[Tensor | None],
    scalars: Mapping[str, Any],
    wanted: Backend | None,
    contract: Contract | None,
    strictness: bool,
) -> tuple[Any, ...]:
    """Return everything that a check or a requirement may look at. A value that is no tensor fails the check later."""
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
