"""CaptureTarget: a callable whose calls are recorded, by the name under which programs call it."""

from __future__ import annotations

import os
import re

OPS = "torch.ops."
_WORD = r"[^\W\d]\w*"
_PATH = rf"{_WORD}(\.{_WORD})*"
_NAME = re.compile(rf"{_PATH}:{_PATH}")
_IN_FILE = re.compile(rf"(?P<file>[^:]+\.py):{_PATH}")
SCRIPT = "__main__"  # the module name of the script that Python runs


class CaptureTarget:
    """`module:function`, `module:Class.method`, `script.py:function` or `torch.ops.namespace:name`.

    `__main__:function` is a function of the script that Python runs, whatever its name.
    An op of Kernwright is called in several places, which a program may lack; its calls are recorded under one name.
    """

    def __init__(self, name: str, index: int = 0, place: str | None = None, file: str | None = None) -> None:
        where = place or name
        problem = problem_with(where)
        if problem:
            raise ValueError(f"{where}: {problem}")
        self.name = name
        self.index = index
        self.is_own_op = place is not None
        self.file = file  # the absolute path of a target that is named by its file
        self.module, _, path = where.rpartition(":")
        self.path = tuple(path.split("."))

    @property
    def torch_op(self) -> str | None:
        """`namespace::name` of a torch op, or None for a function of a module."""
        return f"{self.module[len(OPS) :]}::{self.path[0]}" if self.module.startswith(OPS) else None

    def is_in_script(self, path: str, spec_name: str = "") -> bool:
        """Return whether a script defines the target.

        Args:
            path: the script's file.
            spec_name: the module's name, if the script was started with `python -m`.
        """
        if self.file is not None:
            return os.path.realpath(path) == self.file
        if self.module in (SCRIPT, spec_name):
            return True
        return f"/{os.path.realpath(path)}".endswith("/" + self.module.replace(".", "/") + ".py")


def file_in(name: str) -> str | None:
    """Return the file of a target such as `model.py:gate`, or None if the target names a module."""
    found = _IN_FILE.fullmatch(name)
    return found.group("file") if found else None


def problem_with(name: str) -> str | None:
    """Return why a name is not a valid target, or None if it is valid."""
    if file_in(name):
        return None
    if not _NAME.fullmatch(name):
        return "is not of the form module:function, script.py:function, module:Class.method or torch.ops.namespace:name"
    module, _, path = name.partition(":")
    if module.startswith(OPS) and ("." in module[len(OPS) :] or "." in path):
        return "a torch op is named as in torch.ops.namespace:name, without its overload"
    return None
