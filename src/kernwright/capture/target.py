"""CaptureTarget: a callable whose calls are recorded, by the name under which programs call it."""

from __future__ import annotations

import re

OPS = "torch.ops."
_WORD = r"[^\W\d]\w*"
_NAME = re.compile(rf"{_WORD}(\.{_WORD})*:{_WORD}(\.{_WORD})*")


class CaptureTarget:
    """`module:function`, `module:Class.method`, or `torch.ops.namespace:name`.

    An op of Kernwright is called in several places, which a program may lack; its calls are recorded under one name.
    """

    def __init__(self, name: str, index: int = 0, place: str | None = None) -> None:
        where = place or name
        problem = problem_with(where)
        if problem:
            raise ValueError(f"{where}: {problem}")
        self.name = name
        self.index = index
        self.is_own_op = place is not None
        self.module, _, path = where.partition(":")
        self.path = tuple(path.split("."))

    @property
    def torch_op(self) -> str | None:
        """`namespace::name` of a torch op, or None for a function of a module."""
        return f"{self.module[len(OPS) :]}::{self.path[0]}" if self.module.startswith(OPS) else None


def problem_with(name: str) -> str | None:
    """Return why a name is not a valid target, or None if it is valid."""
    if not _NAME.fullmatch(name):
        return "is not of the form module:function, module:Class.method or torch.ops.namespace:name"
    module, _, path = name.partition(":")
    if module == "__main__":
        return "a script's own functions are never imported, so they cannot be seen: move it to a module"
    if module.startswith(OPS) and ("." in module[len(OPS) :] or "." in path):
        return "a torch op is named as in torch.ops.namespace:name, without its overload"
    return None
