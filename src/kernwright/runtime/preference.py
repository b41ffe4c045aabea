"""Preference: which backend the user wants, and whether the reference may stand in for a kernel.

    kernwright.prefer("triton")                  from here on, everywhere in the program
    with kernwright.prefer("triton"): ...        in this block alone
    KERNWRIGHT_BACKEND=triton python ...         for the whole program
    ops.norm_scale_shift(..., backend="triton")  for one call

The nearest one counts: the call's own, then the block's, then the program's, then the environment's. The environment is
read once: a call costs microseconds, and asking it each time would be a good part of them.
"""

from __future__ import annotations

import os
from contextlib import suppress
from contextvars import ContextVar, Token
from functools import cache
from types import TracebackType
from typing import Generic, Literal, TypeVar

from kernwright.errors import KernwrightError

Backend = Literal["cuda", "cpu", "triton", "torch"]
BACKENDS: tuple[Backend, ...] = ("cuda", "cpu", "triton", "torch")  # in the order in which they are tried
BACKEND_VARIABLE, STRICT_VARIABLE = "KERNWRIGHT_BACKEND", "KERNWRIGHT_STRICT"
ENVIRONMENT = "the environment"
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

    def nearest(self) -> Setting[Value] | None:
        return self.block.get() or (self.program[-1] if self.program else None)

    def forget(self) -> None:
        self.all[:] = [ENVIRONMENT, *(own for own in self.all if own != ENVIRONMENT and own not in self.program)]
        self.program.clear()


class Setting(Generic[Value]):
    """Holds for the program from when it is made; as a `with` block it holds in the block alone, and in its thread."""

    def __init__(self, layers: Layers[Value], value: Value) -> None:
        self.value = value
        self._layers = layers
        self._token: Token[Setting[Value] | None] | None = None
        layers.all.append(self)
        layers.program.append(self)

    def __enter__(self) -> None:
        self._layers.program.remove(self)
        self._token = self._layers.block.set(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._token is not None
        self._layers.block.reset(self._token)
        self._layers.all.remove(self)


_backends: Layers[Backend | None] = Layers("kernwright_backend")
_strictness: Layers[bool] = Layers("kernwright_strict")
preferences = _backends.all  # at hand: every call of an op asks


def prefer(backend: Backend | None) -> Setting[Backend | None]:
    """None: whatever is best, whatever was preferred before."""
    return Setting(_backends, None if backend is None else known(backend))


def strict(on: bool = True) -> Setting[bool]:
    """The reference in a kernel's place becomes an error."""
    return Setting(_strictness, on)


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
