"""Preference: the backend that the user wants, and whether the reference may run instead of a kernel.

    kernwright.prefer("triton")                   for the whole program
    with kernwright.preferring("triton"): ...     in this block and thread; also a decorator
    KERNWRIGHT_BACKEND=triton python ...          from the environment, which is read once
    ops.norm_scale_shift(..., backend="triton")   for one call

The innermost preference counts: that of the call, then of the block, the program and the environment. `"best"` asks for
the best backend and overrides the outer preferences. `strict=True` in the same places, or `KERNWRIGHT_STRICT=1`, turns
a fallback to the reference into an error.

A block inside a function that torch.compile traces becomes a part of the graph. All other preferences are looked up
when the graph runs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from functools import cache, wraps
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import Any, Literal, NamedTuple, TypeVar

from kernwright.core.errors import KernwrightError
from kernwright.core.runtime_interface import STRICT_VARIABLE as STRICT_VARIABLE

Backend = Literal["cuda", "cpu", "triton", "torch"]
BackendWish = Literal["cuda", "cpu", "triton", "torch", "best"]
BACKENDS: tuple[Backend, ...] = ("cuda", "cpu", "triton", "torch")  # in the order in which they are tried
BEST: Literal["best"] = "best"
BACKEND_VARIABLE = "KERNWRIGHT_BACKEND"
ON, OFF = ("1", "true", "yes", "on"), ("", "0", "false", "no", "off")  # values of STRICT_VARIABLE
Function = TypeVar("Function", bound=Callable[..., Any])


class Preference(NamedTuple):
    """A preferred backend, and strictness. None keeps the outer setting."""

    backend: BackendWish | None = None
    strict: bool | None = None

    def inside(self, outer: Preference) -> Preference:
        """Return this preference with the settings of an outer one where it has none."""
        return Preference(self.backend or outer.backend, outer.strict if self.strict is None else self.strict)


NOTHING = Preference()
_blocks: ContextVar[tuple[Preference, ...]] = ContextVar("kernwright_preference", default=())
_traced: list[Preference] = []  # blocks inside the function that is being traced; empty outside of traces
_program = [NOTHING]
# Places where a backend may be preferred: the environment until it was read, the program, open blocks. Calls look here
# first.
active: list[str] = ["environment"]


def prefer(backend: BackendWish | None = None, strict: bool | None = None) -> None:
    """Prefer a backend, or strictness, in the whole program.

    Arguments:
        backend: the backend that all ops run on, if no block or call asks for another one:

            "cuda"    CUDA C++ kernels, built on first use or ahead of time (`kernwright build`)
            "cpu"     C++ kernels for the CPU
            "triton"  Triton kernels
            "torch"   the reference of the op, on any device
            "best"    the first of these that takes the call; this is the default

            A call that the backend does not take raises CannotRun. None leaves the setting as it is.
        strict: whether a call raises CannotRun where the best backend would be the reference, though the op has
            kernels. None leaves the setting as it is.

    The environment variables KERNWRIGHT_BACKEND and KERNWRIGHT_STRICT set the same for programs that do not call this.
    """
    if _is_traced():  # the setting outlives the graph, so it cannot be a part of it
        sys.modules["torch"]._dynamo.graph_break()
    _program[0] = Preference(backend and known(backend), strict).inside(_program[0])
    if _program[0].backend and "program" not in active:
        active.append("program")


class preferring:
    """Prefer a backend, or strictness, in a `with` block of this thread or in every call of a decorated function.

        with kernwright.preferring("triton", strict=True):
            y = ops.rms_norm(x, weight)

    Arguments:
        backend: "cuda", "cpu", "triton", "torch" or "best", as in `kernwright.prefer`. None keeps the outer setting.
        strict: whether a fallback to the reference is an error. None keeps the outer setting.
    """

    def __init__(self, backend: BackendWish | None = None, strict: bool | None = None) -> None:
        self.wish = Preference(backend and known(backend), strict)

    def __enter__(self) -> None:
        if _is_traced():
            _traced.append(self.wish.inside(wish_of_blocks(True)))
        else:
            active.append("block")
            _blocks.set((*_blocks.get(), self.wish.inside(wish_of_blocks(False))))

    def __exit__(self, *problem: object) -> None:
        if _is_traced():
            _traced.pop()
        else:
            _blocks.set(_blocks.get()[:-1])
            active.remove("block")

    def __call__(self, function: Function) -> Function:
        if any(is_later(function) for is_later in (isgeneratorfunction, iscoroutinefunction, isasyncgenfunction)):
            cause = f"cannot decorate {function.__name__}, a generator or coroutine function"
            raise KernwrightError(cause, "write `with kernwright.preferring(...):` inside it")

        @wraps(function)
        def inside(*arguments: Any, **named: Any) -> Any:
            with preferring(*self.wish):
                return function(*arguments, **named)

        return inside  # type: ignore[return-value]


def preferred() -> Backend | None:
    """Return the backend that this thread's calls should run on; None for the best one."""
    wish = wish_of_blocks(False).inside(_program[0]).backend or _environment_backend()
    return None if wish == BEST else wish


def is_strict() -> bool:
    """Return whether a fallback to the reference is an error in this thread."""
    wish = wish_of_blocks(False).inside(_program[0]).strict
    return _environment_strict() if wish is None else wish


def wish_of_blocks(is_traced: bool) -> Preference:
    """Return the preference of the blocks around a call. A graph stores it in its ops."""
    stack = _traced if is_traced else _blocks.get()
    return stack[-1] if stack else NOTHING


def reset() -> None:
    """Forget the program's preference and read the environment again. Open blocks stay."""
    _program[0] = NOTHING
    active[:] = ["environment", *(place for place in active if place == "block")]
    _environment_backend.cache_clear()
    _environment_strict.cache_clear()


def known(backend: str, where: str = "backend") -> Any:
    """Return the backend. Raise KernwrightError if there is none of this name; `where` is the setting that named it."""
    if backend not in (*BACKENDS, BEST):
        raise KernwrightError(f"{where}: there is no backend {backend!r}", f"the backends are: {', '.join(BACKENDS)}")
    return backend


def _is_traced() -> bool:
    torch = sys.modules.get("torch")  # a preference does not need torch, so it does not import it
    return torch is not None and torch.compiler.is_dynamo_compiling()


@cache
def _environment_backend() -> BackendWish | None:
    if word := os.environ.get(BACKEND_VARIABLE):
        return known(word, BACKEND_VARIABLE)  # type: ignore[no-any-return]
    with suppress(ValueError):  # another thread may have removed it
        active.remove("environment")
    return None


@cache
def _environment_strict() -> bool:
    word = os.environ.get(STRICT_VARIABLE, "").lower()
    if word not in ON + OFF:
        raise KernwrightError(f"{STRICT_VARIABLE}: {word!r} is neither on nor off", f"use one of {ON + OFF[1:]}")
    return word in ON
