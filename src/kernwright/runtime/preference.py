"""Preference: which backend the user wants, and whether the reference may stand in for a kernel.

    kernwright.prefer("triton")                  from here on, everywhere in the program
    with kernwright.prefer("triton"): ...        in this block alone
    @kernwright.prefer("triton")                 in every call of this function
    KERNWRIGHT_BACKEND=triton python ...         for the whole program
    ops.norm_scale_shift(..., backend="triton")  for one call

The nearest one counts: the call's own, then the block's, then the program's, then the environment's. The environment is
read once: a call costs microseconds, and asking it each time would be a good part of them.

A block inside a function that torch.compile traces becomes a part of its graph: what is called in it carries the wish
along. So does what follows a preference for the program in there, whose own effect comes when the function has run. All
other preferences are looked up when the graph runs, as they are then.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from functools import cache, wraps
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from threading import RLock, get_ident
from types import TracebackType
from typing import Any, Generic, Literal, TypeVar

from kernwright.core.errors import KernwrightError
from kernwright.core.runtime_interface import STRICT_VARIABLE as STRICT_VARIABLE

Backend = Literal["cuda", "cpu", "triton", "torch"]
BACKENDS: tuple[Backend, ...] = ("cuda", "cpu", "triton", "torch")  # in the order in which they are tried
BACKEND_VARIABLE = "KERNWRIGHT_BACKEND"
ENVIRONMENT = "the environment"
BEST = "best"  # in a graph alone
STRICT_WORDS = {"1": True, "true": True, "yes": True, "on": True}
STRICT_WORDS |= {"": False, "0": False, "false": False, "no": False, "off": False}
Value = TypeVar("Value")
Function = TypeVar("Function", bound=Callable[..., Any])


class Wish(Generic[Value]):
    """What the program is to follow, and the thread that said so."""

    def __init__(self, value: Value) -> None:
        self.value, self.thread = value, get_ident()


class Layers(Generic[Value]):
    """The values that blocks and the program set, the nearest first.

    `all` has whoever may have set one, in any thread, and the environment until it was read and has said nothing. Where
    it is empty there is none, which costs least to ask.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.block: ContextVar[tuple[Setting[Value], ...]] = ContextVar(f"kernwright_{name}", default=())
        self.program: list[Wish[Value]] = []
        # Said, and perhaps a `with` block's in a moment: until that is known, no thread but the one that said it
        # follows.
        self.said: list[Wish[Value]] = []
        self.all: list[Setting[Value] | Wish[Value] | str] = [ENVIRONMENT]
        # Of the function that is being traced: outside of traces the first is empty, and what the second holds are
        # preferences for the program that a traced function has left.
        self.traced: list[Value] = []
        self.left_by_traces: list[TracedBlock[Value]] = []
        self._change = RLock()  # one that can be taken twice: a setting may be let go of in the midst of a change

    def spelled(self, value: Value) -> str:
        return f"kernwright.{self.name}({value!r})"

    def nearest(self) -> Setting[Value] | Wish[Value] | None:
        if self.left_by_traces:
            self.settle_traces()
        if self.said:
            self.settle(get_ident())
        if blocks := self.block.get():
            return blocks[-1]
        latest = self.program[-1:]  # in one step: another thread may be taking it away
        return latest[0] if latest else None

    def say(self, value: Value) -> Wish[Value]:
        if self.left_by_traces:
            self.settle_traces()
        wish = Wish(value)
        with self._change:
            self.all.append(wish)
            self.said.append(wish)
        return wish

    def settle(self, thread: int, last: Wish[Value] | None = None) -> None:
        """What a thread has said, all of it or up to one, holds for the program: it did not become a block's."""
        with self._change:
            if last is not None and last not in self.said:
                return
            for wish in [own for own in self.said if own.thread == thread]:
                self.said.remove(wish)
                self.program.append(wish)
                if wish is last:
                    break

    def take_back(self, wish: Wish[Value]) -> None:
        with self._change:
            for held in (self.said, self.program, self.all):
                if wish in held:
                    held.remove(wish)

    def settle_traces(self) -> None:
        """What traced functions have left holds for the program from then on."""
        with self._change:
            left, self.left_by_traces[:] = list(self.left_by_traces), []
            wishes = [Wish(own.value) for own in left]
            self.all += wishes
            self.program += wishes

    def forget(self) -> None:
        with self._change:
            self.left_by_traces.clear()
            self.all[:] = [ENVIRONMENT, *(own for own in self.all if isinstance(own, Setting))]
            self.said.clear()
            self.program.clear()


class Setting(Generic[Value]):
    """A statement of its own holds for the program; a `with` block holds in the block alone, and in its thread. Blocks
    may be entered again, in each other and from several threads; as a decorator it is a block around every call.

    Which of them it is shows only after it was made. Other threads must not follow a block for even a moment, so what
    is said holds for them once it is clear that it is none: the statement has ended and let go of it, somebody looks at
    it (an interpreter shows what a statement gave), or its thread goes on and runs an op.
    """

    def __init__(self, layers: Layers[Value], value: Value, in_block_alone: bool = False) -> None:
        self.value, self._layers = value, layers
        self._wish = None if in_block_alone else layers.say(value)

    def __enter__(self) -> None:
        layers = self._layers
        layers.all.append(self)
        layers.block.set((*layers.block.get(), self))
        self._take_back()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        layers, blocks = self._layers, self._layers.block.get()
        if self in blocks:  # what is left elsewhere than it was entered, as by a generator, was never seen here
            place = len(blocks) - 1 - blocks[::-1].index(self)
            layers.block.set(blocks[:place] + blocks[place + 1 :])
        layers.all.remove(self)

    def __call__(self, function: Function) -> Function:
        self._take_back()
        return _around_calls(self._layers, self.value, function)

    def __repr__(self) -> str:
        if self._wish is not None:
            self._layers.settle(self._wish.thread, self._wish)
        return self._layers.spelled(self.value)

    def __del__(self) -> None:
        if self._wish is not None:
            self._layers.settle(self._wish.thread, self._wish)

    def _take_back(self) -> None:
        if self._wish is not None:
            self._layers.take_back(self._wish)
            self._wish = None


class TracedBlock(Generic[Value]):
    """A preference in a function that is being traced, in words that a tracer can follow."""

    def __init__(self, layers: Layers[Value], value: Value) -> None:
        self.value, self._layers = value, layers
        layers.left_by_traces.append(self)

    def __enter__(self) -> None:
        self._take_back()
        self._layers.traced.append(self.value)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._layers.traced.pop()

    def __call__(self, function: Function) -> Function:
        self._take_back()
        return _around_calls(self._layers, self.value, function)

    def _take_back(self) -> None:
        if self in self._layers.left_by_traces:
            self._layers.left_by_traces.remove(self)


def _around_calls(layers: Layers[Value], value: Value, function: Function) -> Function:
    """A block around every call of it, in a graph or not."""
    if any(is_later(function) for is_later in (isgeneratorfunction, iscoroutinefunction, isasyncgenfunction)):
        name = getattr(function, "__name__", repr(function))
        raise KernwrightError(
            f"{layers.spelled(value)} as a decorator: a call of {name} is over before what it does begins",
            f"write `with {layers.spelled(value)}:` inside of it",
        )

    @wraps(function)
    def inside(*arguments: Any, **named: Any) -> Any:
        with TracedBlock(layers, value) if _is_traced() else Setting(layers, value, in_block_alone=True):
            return function(*arguments, **named)

    return inside  # type: ignore[return-value]


_backends: Layers[Backend | None] = Layers("prefer")
_strictness: Layers[bool] = Layers("strict")
preferences, left_by_traces = _backends.all, _backends.left_by_traces  # at hand: every call of an op asks


def prefer(backend: Backend | None) -> Setting[Backend | None] | TracedBlock[Backend | None]:
    """None: whatever is best, whatever was preferred before."""
    value = None if backend is None else known(backend)
    return TracedBlock(_backends, value) if _is_traced() else Setting(_backends, value)


def strict(on: bool = True) -> Setting[bool] | TracedBlock[bool]:
    """The reference in a kernel's place becomes an error."""
    return TracedBlock(_strictness, on) if _is_traced() else Setting(_strictness, on)


def _is_traced() -> bool:
    """Without an import of torch, which a preference does not need."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.compiler.is_dynamo_compiling()


def blocks_wishes(is_traced: bool) -> tuple[str | None, bool | None]:
    """For a graph: what the blocks around a call ask for, where there are any, or the function before it for the
    program; `BEST` is the wish of prefer(None)."""
    if not is_traced:  # a graph is made of what runs, and blocks are what they always are
        backends, strictness = _backends.block.get(), _strictness.block.get()
        wish = (backends[-1].value or BEST) if backends else None
        return wish, strictness[-1].value if strictness else None
    wishes = _backends.traced or [own.value for own in _backends.left_by_traces]
    words = _strictness.traced or [own.value for own in _strictness.left_by_traces]
    return (wishes[-1] or BEST) if wishes else None, words[-1] if words else None


def check_reference_alone(op: str, backend: str | None, is_strict: bool | None, why: str) -> None:
    """Where nothing but the reference can be a part of a graph: that nothing else was asked for.

    One of Python's own errors, as above: untraced the call has words of ours for it.
    """
    if backend not in (None, BEST, "torch"):
        raise RuntimeError(f"{op} cannot run on {backend}: {why}")
    if is_strict:
        raise RuntimeError(f"{op} would run its reference: {why}")


@contextmanager
def held(backend: str | None, is_strict: bool | None) -> Iterator[None]:
    """While a call of a graph runs: the wishes that it carries."""
    with ExitStack() as blocks:
        if backend == BEST:
            blocks.enter_context(Setting(_backends, None, in_block_alone=True))
        if is_strict is not None:
            blocks.enter_context(Setting(_strictness, is_strict, in_block_alone=True))
        yield


def preferred() -> Backend | None:
    nearest = _backends.nearest()
    return nearest.value if nearest is not None else _environment_backend()


def is_strict() -> bool:
    nearest = _strictness.nearest()
    return nearest.value if nearest is not None else _environment_strict()


def forget() -> None:
    """Takes every program-wide setting back, and reads the environment anew."""
    _backends.forget()
    _strictness.forget()
    _environment_backend.cache_clear()
    _environment_strict.cache_clear()


@cache
def _environment_backend() -> Backend | None:
    if word := os.environ.get(BACKEND_VARIABLE):
        return known(word, BACKEND_VARIABLE)
    with suppress(ValueError):  # another thread may have read it just as well
        _backends.all.remove(ENVIRONMENT)
    return None


@cache
def _environment_strict() -> bool:
    word = os.environ.get(STRICT_VARIABLE, "").lower()
    if word not in STRICT_WORDS:
        possible = ", ".join(filter(None, STRICT_WORDS))
        raise KernwrightError(f"{STRICT_VARIABLE}: {word!r} is neither on nor off", f"set it to one of: {possible}")
    return STRICT_WORDS[word]


def known(backend: str, where: str = "backend") -> Backend:
    if backend not in BACKENDS:
        raise KernwrightError(f"{where}: there is no backend {backend!r}", f"the backends are: {', '.join(BACKENDS)}")
    return backend
