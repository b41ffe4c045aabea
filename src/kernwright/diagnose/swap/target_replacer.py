"""TargetReplacer: replaces the targets in a process of the program. torch is imported only in their first call."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from kernwright.diagnose.swap.swap_log import SwapLog


class TargetReplacer:
    """Replaces functions in a run with swaps, where `kernwright capture` records their calls instead."""

    def __init__(self, folder: str, plan: Mapping[str, Any]) -> None:
        self._log = SwapLog(folder)
        self._swaps = {swap["target"]: swap for swap in plan["swaps"]}
        self._checks = bool(plan["checks"])
        self._is_active = bool(plan["active"])

    def wrapped(self, target: Any) -> None:
        self._log.note({"wrapped": target.name})

    def problem(self, target: Any, said: str) -> None:
        self._log.note({"problem": said, "target": target.name})

    def replacement(self, function: Callable[..., Any], target: Any) -> Callable[..., Any]:
        """Return the function that runs instead, which is built in its first call.

        In a run to compare with, that is the original: the program is watched in the same way, which takes time.
        """
        if not self._is_active:
            return function
        swap, lock = self._swaps[target.name], threading.RLock()
        made: list[Callable[..., Any]] = []

        def replacement(*args: Any, **kwargs: Any) -> Any:
            if not made:
                with lock:
                    if not made:
                        made.append(function)  # while the candidate is loaded, its own calls run the original
                        made[0] = self._built(function, swap)
            return made[0](*args, **kwargs)

        return replacement

    def _built(self, function: Callable[..., Any], swap: Mapping[str, Any]) -> Callable[..., Any]:
        """Return the replacement, or the original if the candidate cannot be loaded."""
        begin = time.perf_counter()
        try:
            from kernwright.diagnose.swap.replaced_function import ReplacedFunction

            built = ReplacedFunction(function, swap, self._log, self._checks)
        except Exception as error:  # any error of the candidate's own code: the program must go on
            self._log.note({"failed": f"{type(error).__name__}: {error}", "target": swap["target"]})
            return function
        self._log.note({"target": swap["target"], "extra_ms": 1e3 * (time.perf_counter() - begin)})
        return built
