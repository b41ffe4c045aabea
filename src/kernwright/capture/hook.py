"""The import hook: wrap targets as soon as the import of their module ends, before other modules can take them."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from . import wrapper
from .recorder import Recorder
from .script import ScriptWatch
from .target import SCRIPT, CaptureTarget

FOLDER = "KERNWRIGHT_CAPTURE"  # the environment variable that names the folder of a capture
PLAN = "plan.json"


def start(folder: str) -> None:
    """Start to record in this process, as the plan in the folder says."""
    with open(f"{folder}/{PLAN}", encoding="utf-8") as file:  # noqa: PTH123 (a program may not have pathlib loaded)
        plan = json.load(file)
    places: dict[str, list[str | None]] = plan.get("places", {})
    files: dict[str, str] = plan.get("files", {})
    targets = [
        CaptureTarget(name, index, place, files.get(name))
        for index, name in enumerate(plan["targets"])
        for place in places.get(name, [None])
    ]
    recorder = _follower(folder, plan)
    watch = Watch(targets, recorder)
    sys.meta_path.insert(0, watch)
    for name in watch.modules:
        if name in sys.modules:
            watch.imported(name)
    ScriptWatch([target for target in targets if not target.torch_op and not target.is_own_op], recorder).start()


def _follower(folder: str, plan: dict[str, Any]) -> Any:
    """Return the recorder, or the object that the plan names: `module:class`, of a package that may be elsewhere."""
    named = plan.get("follower")
    if named is None:
        return Recorder(folder, plan["targets"])
    module, _, name = named.partition(":")
    if importlib.util.find_spec(module.partition(".")[0]) is None:
        sys.path.append(plan["home"])
    return getattr(importlib.import_module(module), name)(folder, plan)


class Watch:
    """A meta path finder that finds no module itself. It makes the loader of a module call back after the import."""

    def __init__(self, targets: Sequence[CaptureTarget], recorder: wrapper.Follower) -> None:
        self._ops = [target for target in targets if target.torch_op]
        self._targets = [target for target in targets if not target.torch_op]
        self._recorder = recorder
        self.modules = {t.module for t in self._targets if t.file is None and t.module != SCRIPT} | {"torch"}
        self._stems = {_stem(target.file): target.file for target in self._targets if target.file is not None}

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> Any:
        if name not in self.modules and name.rpartition(".")[2] not in self._stems:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if name in self.modules or self._targets_of(name, spec.origin):
                    self._call_back(spec.loader, name)
                return spec
        return None

    def _call_back(self, loader: Any, name: str) -> None:
        """Set the callback on the instance of the loader, so that its type stays the same for the program."""
        load = getattr(loader, "exec_module", None)
        if load is None or isinstance(loader, type):
            return self._all(name, "cannot be watched: it is built in, or loaded in an unusual way")

        def exec_module(module: ModuleType) -> None:
            load(module)
            if module.__name__ == name:
                vars(loader).pop("exec_module", None)
                self.imported(name)

        try:
            loader.exec_module = exec_module
        except AttributeError:
            self._all(name, f"cannot be watched: its loader, a {type(loader).__name__}, cannot be changed")
        return None

    def _all(self, name: str, said: str) -> None:
        for target in self._targets_of(name):
            self._recorder.problem(target, f"{name} {said}")

    def _targets_of(self, name: str, file: str | None = None) -> list[CaptureTarget]:
        """Return the targets in a module, by its name or by its file."""
        path = os.path.realpath(file) if file else None
        return [t for t in self._targets if (t.module == name if t.file is None else t.file == path)]

    def imported(self, name: str) -> None:
        module = sys.modules.get(name)
        if module is None:
            return
        if name == "torch" and hasattr(module, "compiler"):
            wrapper.is_compiling = module.compiler.is_compiling
            if self._ops and isinstance(self._recorder, Recorder):
                wrapper.watch_torch_ops(module, self._ops, self._recorder)
        for target in self._targets_of(name, getattr(module, "__file__", None)):
            wrapper.put_wrapper(module, target, self._recorder)


def _stem(file: str) -> str:
    """Return the last word of the name under which a file is imported."""
    words = file[: -len(".py")].split("/")
    return words[-2] if words[-1] == "__init__" else words[-1]
