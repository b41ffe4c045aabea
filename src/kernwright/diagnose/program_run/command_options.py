"""Options in the command of a foreign program: what it computes, and where it writes its perf dump."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from kernwright.diagnose.presets.preset import OPTIONS

PERF_DUMP = "--perf-dump-path"  # option of sglang
OWN_PERF_DUMP = "--perf-dump"  # option of `kernwright denoise`
GPUS = "--num-gpus"
_FURTHER = {"model": "--model-path", "seed": "--seed", "prompt": "--prompt"}
_SGLANG = re.compile(r"sglang(\.[\w.]+)?")


def is_sglang_generate(command: Sequence[str]) -> bool:
    """Return whether a command is `sglang generate`, also behind another program or as a module of Python."""
    return any(_SGLANG.fullmatch(Path(first).name) and second == "generate" for first, second in pairwise(command))


def option_value(command: Sequence[str], name: str) -> str | None:
    """Return the value of an option, as in `--name=value` or `--name value`. The last one counts, and _ equals -."""
    found = None
    for place, word in enumerate(command):
        option, equals, value = word.partition("=")
        if not option.startswith("--") or option.replace("_", "-") != name:
            continue
        if equals:
            found = value
        elif place + 1 < len(command) and not command[place + 1].startswith("--"):
            found = command[place + 1]
    return found


def wanted_gpus(command: Sequence[str]) -> int | None:
    """Return the number of GPUs that a command of sglang asks for, or None."""
    value = option_value(command, GPUS)
    return int(value) if value is not None and value.isdigit() else None


def workload_of(command: Sequence[str]) -> dict[str, Any]:
    """Return what a command of sglang states about its computation, in the names of a preset's request."""
    options = [*OPTIONS.items(), *_FURTHER.items()]
    stated = {str(field): option_value(command, option) for field, option in options}
    return {field: _number(value) for field, value in stated.items() if value is not None}


def _number(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
