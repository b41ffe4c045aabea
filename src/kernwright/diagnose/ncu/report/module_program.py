"""The program that reads a report with Nsight Compute's own Python module and prints it as JSON, one launch per line.

It runs as a script in a process of its own, because the module is a compiled library that may fail in a Python that it
was not built for. It imports nothing of Kernwright.

    python module_program.py FOLDER_OF_THE_MODULE REPORT
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

ATTRIBUTES = {"device": "device__attribute_display_name"}
SIZES = {"grid": "launch__grid_dim_{}", "block": "launch__block_dim_{}"}
CAPABILITY = "device__attribute_compute_capability_{}"


def main() -> None:
    folder, report = sys.argv[1:3]
    sys.path.insert(0, folder)
    module = importlib.import_module("ncu_report")
    context = module.load_report(report)
    for range_number in range(context.num_ranges()):
        launches = context.range_by_idx(range_number)
        for number in range(launches.num_actions()):
            action = launches.action_by_idx(number)
            print(json.dumps(describe(action, full_name(module, action))))


def full_name(module: Any, action: Any) -> str:
    """Return the name with template arguments, as exports have it. Old versions only have the short one."""
    base = getattr(getattr(module, "IAction", None), "NameBase_DEMANGLED", None)
    return str(action.name() if base is None else action.name(base))


def describe(action: Any, name: str) -> dict[str, Any]:
    """Return a launch: its name, its sizes, and its counters as name, value and unit."""
    counters: dict[str, list[Any]] = {}
    texts: dict[str, str] = {}
    for metric in action.metric_names():
        value, unit = read(action.metric_by_name(metric))
        if isinstance(value, str):
            texts[metric] = value
        elif value is not None:
            counters[metric] = [value, unit]
    major, minor = (counters.get(CAPABILITY.format(part)) for part in ("major", "minor"))
    found: dict[str, Any] = {
        "name": name,
        "capability": f"{major[0]:.0f}.{minor[0]:.0f}" if major and minor else None,
        "device": texts.get(ATTRIBUTES["device"]),
        "counters": counters,
    }
    for word, pattern in SIZES.items():
        sizes = [counters.get(pattern.format(axis)) for axis in "xyz"]
        found[word] = [int(size[0]) for size in sizes if size]
    return found


def read(metric: Any) -> tuple[float | str | None, str]:
    """Return a metric's value, as a number where it is one, and its unit."""
    try:
        value = metric.value()
    except Exception:  # the module raises its own types for metrics without a value
        return None, ""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None, ""
    return value, str(metric.unit() or "")


if __name__ == "__main__":
    main()
