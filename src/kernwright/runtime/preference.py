"""Preference: which backend the user wants, and whether the reference may stand in for a kernel.

    kernwright.prefer("triton")                  from here on, everywhere in the program
    with kernwright.prefer("triton"): ...        in this block alone
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
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar, Token
from functools import cache
from types import TracebackType
from typing import Generic, Literal, TypeVar

from kernwright.errors import KernwrightError

Backend = Literal["cuda", "cpu", "triton", "torch"]
BACKENDS: tuple[Backend, ...] = ("cuda", "cpu", "triton", "torch")  # in the order in which they are tried
BACKEND_VARIABLE, STRICT_VARIABLE = "KERNWRIGHT_BACKEND", "KERNWRIGHT_STRICT"
ENVIRONMENT = "the environment"
BEST = "best"  # in a graph alone
STRICT_WORDS = {"1": True, "true": True, "yes": True, "on": True}
STRICT_WORDS |= {"": False, "0": False, "false": False, "no": False, "off": False}
Value = TypeVar("Value")


class Layers(Generic[Value]):
    """The values that blocks and the program set, the nearest first.

    `all` has whoever may have set one, in any thread, and the environment until it was read and has said nothing. Where
    it is empty there is none, which costs least to ask.
    """

    def __init__(self, name: str) -> None:
        self.block: ContextVar[Setting[Value] | None] = ContextVar(name, default=None)
        self.program: list[Setting[Value]] = []
        self.all: list[Setting[Value] | str] = [ENVIRONMENT]
        # Of the function that is being traced: outside of traces the first is empty, and what the second holds are
        # preferences for the program that a traced function has left.
        self.traced: list[Value] = []
        self.left_by_traces: list[TracedBlock[Value]] = []

    def nearest(self) -> Setting[Value] | None:
        if self.left_by_traces:
            self.settle()
        return self.block.get() or (self.program[-1] if self.program else None)

    def settle(self) -> None:
        """What traced functions have left holds for the program from then on."""
        left, self.left_by_traces[:] = list(self.left_by_traces), []
        for own in left:
            Setting(self, own.value)

    def forget(self) -> None:
        self.left_by_traces.clear()
        self.all[:] = [ENVIRONMENT, *(own for own in self.all if own != ENVIRONMENT and own not in self.program)]
        self.program.clear()


class Setting(Generic[Value]):
    """Holds for the program from when it is made; as a `with` block it holds in the block alone, and in its thread."""

    def __init__(self, layers: Layers[Value], value: Value, in_block_alone: bool = False) -> None:
        if layers.left_by_traces:
            layers.settle()
        self.value = value
        self._layers = layers
        self._token: Token[Setting[Value] | None] | None = None
        layers.all.append(self)
        if not in_block_alone:
            layers.program.append(self)

    def __enter__(self) -> None:
        if self in self._layers.program:
            self._layers.program.remove(self)
        self._token = self._layers.block.set(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._token is not None
        self._layers.block.reset(self._token)
        self._layers.all.remove(self)


class TracedBlock(Generic[Value]):
    """A preference in a function that is being traced, in words that a tracer can follow."""

    def __init__(self, layers: Layers[Value], value: Value) -> None:
        self.value, self._layers = value, layers
        layers.left_by_traces.append(self)

    def __enter__(self) -> None:
        self._layers.left_by_traces.pop()
        self._layers.traced.append(self.value)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._layers.traced.pop()


_backends: Layers[Backend | None] = Layers("kernwright_backend")
_strictness: Layers[bool] = Layers("kernwright_strict")
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
        backend, strictness = _backends.block.get(), _strictness.block.get()
        wish = None if backend is None else backend.value or BEST
        return wish, None if strictness is None else strictness.value
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
