"""ScriptWatch: wrap functions that the script itself defines, as soon as they are defined.

A script is executed and not imported, so no import hook sees it. A trace function follows the lines of the script's top
level until all targets are defined for the last time, and then removes itself.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Sequence
from types import CodeType, FrameType
from typing import Any

from . import wrapper
from .target import SCRIPT, CaptureTarget

IN_CHILD = "__mp_main__"  # the name of the script's module in a process that multiprocessing spawned
CHILD_FLAG = "--multiprocessing-fork"


class ScriptWatch:
    """Follows the top level of the script, line by line."""

    def __init__(self, targets: Sequence[CaptureTarget], recorder: wrapper.Follower) -> None:
        self._targets = targets
        self._recorder = recorder
        self._missing: list[CaptureTarget] = []
        self._bound: dict[str, Any] = {}  # the wrapped object that the script has under the name of each target
        self._script: FrameType | None = None

    def start(self) -> None:
        """Start to follow, unless a debugger traces this program already."""
        if self._targets and sys.gettrace() is None:
            sys.settrace(self._entered)

    def _stop(self) -> None:
        if getattr(sys.gettrace(), "__self__", None) is self:
            sys.settrace(None)
        self._script = None

    def _entered(self, frame: FrameType, event: str, argument: Any) -> Any:
        """Find the frame of the script. Every other frame runs without tracing of its lines."""
        name = frame.f_globals.get("__name__")
        if self._script is not None or frame.f_code.co_name != "<module>" or name not in (SCRIPT, IN_CHILD):
            return None
        spec = frame.f_globals.get("__spec__")
        path = frame.f_code.co_filename
        self._missing = [t for t in self._targets if t.is_in_script(path, getattr(spec, "name", None) or "")]
        if self._missing:
            self._script = frame
            return self._line
        if CHILD_FLAG not in sys.argv:  # a spawned process runs the script later, from a command of its own
            self._stop()
        return None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "exception":
            return self._line
        module = sys.modules.get(str(frame.f_globals.get("__name__")))
        if module is None or vars(module) is not frame.f_globals:
            self._stop()
            return None
        for target in [t for t in self._missing if t.path[0] in frame.f_globals]:
            name = target.path[0]
            if self._bound.get(target.name) is not frame.f_globals[name]:  # defined for the first time, or again
                wrapper.put_wrapper(module, target, self._recorder)
                self._bound[target.name] = frame.f_globals.get(name)
            if frame.f_lineno > _last_binding(frame.f_code, name):
                self._missing.remove(target)
        if event == "return":
            for target in self._missing:
                # The scripts of child processes need not define it.
                if target.module != SCRIPT and target.path[0] not in frame.f_globals:
                    self._recorder.problem(target, f"the script ended without defining {target.path[0]}")
            self._missing = []
        if not self._missing:
            self._stop()
            return None
        return self._line


def _last_binding(code: CodeType, name: str) -> int:
    """Return the last line of a script's top level that binds a name; 0 if none does, as with `import *`."""
    lines = dict(dis.findlinestarts(code))
    line = last = 0
    for instruction in dis.get_instructions(code):
        line = lines.get(instruction.offset) or line
        if instruction.opname in ("STORE_NAME", "STORE_GLOBAL") and instruction.argval == name:
            last = max(last, line)
    return last
