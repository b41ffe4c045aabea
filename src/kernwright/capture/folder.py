"""The folder of a capture: each process of the program writes its part, and the parts are merged into a capture."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernwright.capture.capture import Capture, CapturedCall, CaptureHeader
from kernwright.capture.hook import PLAN
from kernwright.capture.recorder import COUNTERS, LINES
from kernwright.capture.target import file_in
from kernwright.core.errors import BadFile, EnvironmentProblem
from kernwright.tasks.files import parse_line, read_text, validate

COUNTER_BYTES = 8


def make_folder(out: Path, program: str, targets: Sequence[str], places: Mapping[str, Sequence[str]]) -> Path:
    """Make a folder for the parts next to the file that they will be merged into.

    Args:
        places: for targets that are called under other names, those names.
    """
    files = {name: str(Path(file).resolve()) for name in targets if (file := file_in(name))}
    try:
        folder = Path(tempfile.mkdtemp(prefix=f"{out.name}.parts-", dir=out.resolve().parent))
        plan = {"program": program, "targets": list(targets), "places": {name: [*places[name]] for name in places}}
        plan["files"] = files
        (folder / PLAN).write_text(json.dumps(plan) + "\n", encoding="utf-8")
    except OSError as error:
        raise EnvironmentProblem(
            f"no folder can be made beside {out}: {error.strerror}", f"make {out.resolve().parent} a writable folder"
        ) from None
    return folder


def remove_folder(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


@dataclass
class _Sum:
    """The merged content of all parts."""

    python: set[str] = field(default_factory=set)
    torch: set[str] = field(default_factory=set)
    wrapped: set[str] = field(default_factory=set)
    problems: set[str] = field(default_factory=set)
    not_kept: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    processes: int = 0


def merge(folder: Path, ending: int | None = None) -> Capture:
    """Return the capture of all parts. Equal signatures are added up, and the order does not depend on processes.

    Args:
        ending: the exit status of the program, or minus the number of the signal that ended it.
    """
    where = folder / PLAN
    remedy = "name a folder that kernwright capture left behind"
    plan = parse_line(str(where), read_text(where, remedy))
    if not isinstance(plan, dict) or not isinstance(plan.get("targets"), list):
        raise BadFile(where, "targets", "is not a capture's plan", remedy)
    total = _Sum()
    for lines in sorted(folder.glob(f"*{LINES}")):
        _add(lines, plan["targets"], total)
    calls = [
        validate(f"{folder}: {text[:60]}", CapturedCall, json.loads(text) | {"count": count})
        for text, count in sorted(total.calls.items())
    ]
    header = CaptureHeader(
        program=str(plan.get("program", "")),
        targets=tuple(plan["targets"]),
        python=tuple(sorted(total.python)),
        torch=tuple(sorted(total.torch)),
        processes=total.processes,
        wrapped=tuple(sorted(total.wrapped)),
        not_kept=dict(sorted(total.not_kept.items())),
        problems=tuple(sorted(total.problems)),
        ending=ending,
    )
    return Capture(header=header, calls=tuple(calls))


def _add(lines: Path, targets: Sequence[str], total: _Sum) -> None:
    counters = lines.with_suffix(COUNTERS).read_bytes()

    def count_of(slot: int) -> int:
        return int.from_bytes(counters[slot * COUNTER_BYTES : (slot + 1) * COUNTER_BYTES], "little")

    total.processes += 1
    for index, target in enumerate(targets):
        if not_kept := count_of(index):
            total.not_kept[target] += not_kept
    for line in lines.read_bytes().splitlines(keepends=True):
        if not line.endswith(b"\n"):
            continue  # the process was killed while it wrote the line, before it counted a call
        said: dict[str, Any] = json.loads(line)
        if "slot" in said:
            slot = said.pop("slot")
            if count := count_of(slot):
                total.calls[json.dumps(said)] += count
            continue
        for name, value in said.items():
            getattr(total, {"problem": "problems"}.get(name, name)).add(value)
