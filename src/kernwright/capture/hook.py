"""The import hook: wrap targets as soon as the import of their module ends, before other modules can take them."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from . import wrapper
from .recorder import Recorder
from .target import CaptureTarget

FOLDER = "KERNWRIGHT_CAPTURE"  # the environment variable that names the folder of a capture
PLAN = "plan.json"


def start(folder: str) -> None:
    """Start to record in this process, as the plan in the folder says."""
    with open(f"{folder}/{PLAN}", encoding="utf-8") as file:  # noqa: PTH123 (a program may not have pathlib loaded)
        plan = json.load(file)
    places: dict[str, list[str | None]] = plan.get("places", {})
    targets = [
        CaptureTarget(name, index, place)
        for index, name in enumerate(plan["targets"])
        for place in places.get(name, [None])
    ]
    watch = Watch(targets, Recorder(folder, plan["targets"]))
    sys.meta_path.insert(0, watch)
    for name in watch.modules:
        if name in sys.modules:
            watch.imported(name)


class Watch:
    """A meta path finder that finds nothing: it makes the loader of a module call back after the import."""

    def __init__(self, targets: Sequence[CaptureTarget], recorder: Recorder) -> None:
        self._ops = [target for target in targets if target.torch_op]
        self._targets = [target for target in targets if not target.torch_op]
        self._recorder = recorder
        self.modules = {target.module for target in self._targets} | {"torch"}

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> Any:
        if name not in self.modules:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
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
        for target in self._targets:
            if target.module == name:
                self._recorder.problem(target, f"{name} {said}")

    def imported(self, name: str) -> None:
        module = sys.modules.get(name)
        if module is None:
            return
        if name == "torch" and hasattr(module, "compiler"):
            wrapper.is_compiling = module.compiler.is_compiling
            if self._ops:
                wrapper.watch_torch_ops(module, self._ops, self._recorder)
        for target in self._targets:
            if target.module == name:
                wrapper.put_wrapper(module, target, self._recorder)
