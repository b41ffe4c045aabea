"""Fused kernels for inference with PyTorch, and a judge that proves whether a kernel is faster.

    import torch
    from kernwright import nn, ops

    with torch.no_grad():
        y = ops.norm_scale_shift(x, scale, shift)  # norm(x) * (1 + scale) + shift in one kernel

`ops` has the ops as functions, `nn` has modules over them. `prefer` and `preferring` choose a backend, and `explain`
tells which implementation a call runs and why. The command `kernwright` judges kernels; it needs the packages of
`pip install "kernwright[judge]"`.

Everything is imported on first use: `import kernwright` alone does not import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernwright.core.version import __version__

if TYPE_CHECKING:
    from kernwright import nn, ops
    from kernwright.core.errors import KernwrightError
    from kernwright.ops.catalog import explain
    from kernwright.runtime.call import BadArgument
    from kernwright.runtime.choice.explanation import Explanation
    from kernwright.runtime.choice.fallback import CannotRun, Fallback
    from kernwright.runtime.library import NotBuilt
    from kernwright.runtime.preference import prefer, preferring

__all__ = [
    "BadArgument",
    "CannotRun",
    "Explanation",
    "Fallback",
    "KernwrightError",
    "NotBuilt",
    "__version__",
    "explain",
    "nn",
    "ops",
    "prefer",
    "preferring",
]
_MODULES = {
    "BadArgument": "kernwright.runtime.call",
    "CannotRun": "kernwright.runtime.choice.fallback",
    "Explanation": "kernwright.runtime.choice.explanation",
    "Fallback": "kernwright.runtime.choice.fallback",
    "KernwrightError": "kernwright.core.errors",
    "NotBuilt": "kernwright.runtime.library",
    "explain": "kernwright.ops.catalog",
    "prefer": "kernwright.runtime.preference",
    "preferring": "kernwright.runtime.preference",
}


def __getattr__(name: str) -> Any:
    import importlib

    if name in ("ops", "nn"):
        return importlib.import_module(f"kernwright.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(_MODULES[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
