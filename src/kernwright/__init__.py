"""Kernwright proves faster kernels: frozen tasks, a judge that takes nobody's word, evidence anyone can check."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernwright.ops.catalog import explain as explain
    from kernwright.runtime.preference import prefer as prefer
    from kernwright.runtime.preference import strict as strict

__version__ = "0.1.0"

_PUBLIC = {
    "explain": "kernwright.ops.catalog",
    "prefer": "kernwright.runtime.preference",
    "strict": "kernwright.runtime.preference",
}


def __getattr__(name: str) -> Any:
    """Imported when it is asked for: `import kernwright` alone brings no torch."""
    import importlib

    if name in ("ops", "nn"):
        return importlib.import_module(f"kernwright.{name}")
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)
