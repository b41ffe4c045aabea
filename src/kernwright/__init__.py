"""Kernwright proves faster kernels: frozen tasks, a judge that trusts no candidate, evidence that can be checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernwright.core.version import __version__ as __version__

if TYPE_CHECKING:
    from kernwright.ops.catalog import explain as explain
    from kernwright.runtime.preference import prefer as prefer
    from kernwright.runtime.preference import preferring as preferring

_PUBLIC = {
    "explain": "kernwright.ops.catalog",
    "prefer": "kernwright.runtime.preference",
    "preferring": "kernwright.runtime.preference",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that `import kernwright` alone does not import torch."""
    import importlib

    if name in ("ops", "nn"):
        return importlib.import_module(f"kernwright.{name}")
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)
