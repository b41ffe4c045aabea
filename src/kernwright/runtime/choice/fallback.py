"""Fallback: the warning that a call runs something slower than the best kernel, and the error if `strict` forbids
this."""

from __future__ import annotations

import inspect
import warnings

from kernwright.core.errors import KernwrightError

PACKAGE = __name__.partition(".")[0]
# Frames that a warning skips, since its reader cannot change their code: those of this package, of the recorder that a
# capture adds to a program, and of torch between a module's call and its forward.
SKIPPED_FRAMES = (PACKAGE, f"_{PACKAGE}_capture", "torch")


class CannotRun(KernwrightError):
    """None of the requested implementations takes the call."""


class Fallback(UserWarning):
    """The reference runs instead of a kernel, or another kernel instead of one that cannot be built."""


def warn_of_fallback(message: str) -> None:
    """Issue a Fallback warning that points at the line of the user's code that made the call."""
    level, frame = 1, inspect.currentframe()
    while frame is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] in SKIPPED_FRAMES:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, Fallback, stacklevel=level)
