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
from contextvars import ContextVar, Token
from functools import cache
from types import TracebackType
from typing import Generic, Literal, TypeVar

from kernwright.errors import KernwrightError

Backend = Literal["cuda", "cpu", "triton", "torch"]
BACKENDS: tuple[Backend, ...] = ("cuda", "cpu", "triton", "torch")  # in the order in which they are tried
BACKEND_VARIABLE, STRICT_VARIABLE = "KERNWRIGHT_BACKEND", "KERNWRIGHT_STRICT"
Value = TypeVar("Value")


class Layers(Generic[Value]):
    """The values that blocks and the program set, the nearest first."""

    def __init__(self, name: str) -> None:
        self.block: ContextVar[Setting[Value] | None] = ContextVar(name, default=None)
        self.program: list[Setting[Value]] = []

    def nearest(self) -> Setting[Value] | None:
        return self.block.get() or (self.program[-1] if self.program else None)


class Setting(Generic[Value]):
    """Holds for the program from when it is made; as a `with` block it holds in the block alone, and in its thread."""

    def __init__(self, layers: Layers[Value], value: Value) -> None:
        self.value = value
        self._layers = layers
        self._token: Token[Setting[Value] | None] | None = None
        layers.program.append(self)

    def __enter__(self) -> None:
        self._layers.program.remove(self)
        self._token = self._layers.block.set(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._token is not None
        self._layers.block.reset(self._token)


_backends: Layers[Backend | None] = Layers("kernwright_backend")
_strictness: Layers[bool] = Layers("kernwright_strict")
_in_block, _in_program = _backends.block.get, _backends.program  # at hand: every call of an op asks


def prefer(backend: Backend | None) -> Setting[Backend | None]:
    """None: whatever is best, whatever was preferred before."""
    return Setting(_backends, None if backend is None else known(backend))


def strict(on: bool = True) -> Setting[bool]:
    """The reference in a kernel's place becomes an error."""
    return Setting(_strictness, on)


def preferred() -> Backend | None:
    nearest = _in_block() or (_in_program[-1] if _in_program else None)
    return nearest.value if nearest is not None else _environment_backend()


def is_strict() -> bool:
    nearest = _strictness.nearest()
    return nearest.value if nearest is not None else _environment_strict()


def forget() -> None:
    """Takes every program-wide setting back, and reads the environment anew."""
    for layers in (_backends, _strictness):
        layers.program.clear()
    _environment_backend.cache_clear()
    _environment_strict.cache_clear()


@cache
def _environment_backend() -> Backend | None:
    word = os.environ.get(BACKEND_VARIABLE)
    return known(word, BACKEND_VARIABLE) if word else None


@cache
def _environment_strict() -> bool:
    return os.environ.get(STRICT_VARIABLE, "") not in ("", "0")


def known(backend: str, where: str = "backend") -> Backend:
    if backend not in BACKENDS:
        raise KernwrightError(f"{where}: there is no backend {backend!r}", f"the backends are: {', '.join(BACKENDS)}")
    return backend
