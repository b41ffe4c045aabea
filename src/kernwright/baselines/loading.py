"""Load a published package in the worker of a baseline, and bind its functions in the signature of an op."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from kernwright.baselines.adapter import Function


def load_published(side: dict[str, Any]) -> Function:
    """Return the callable of the op. Nothing of the package is imported earlier, or in another process."""
    adapter = importlib.import_module(side["adapters"]).TABLE.adapters[side["op"]]
    _open_paths(Path(side["tree"]), side["paths"])
    return adapter.bind(*(_function(name) for name in adapter.functions))  # type: ignore[no-any-return]


def _open_paths(tree: Path, paths: list[str]) -> None:
    for path in paths:
        if path not in sys.path:
            sys.path.insert(0, path)  # the pinned package comes before others of this machine
    if (tree / "sglang").is_dir():
        from kernwright.baselines.sglang.stand_ins import install_sglang

        if "sglang" not in sys.modules:
            install_sglang(tree)
    elif str(tree) not in sys.path:
        sys.path.insert(0, str(tree))


def _function(name: str) -> Function:
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)  # type: ignore[no-any-return]
