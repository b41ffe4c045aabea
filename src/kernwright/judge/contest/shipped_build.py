"""ShippedBuild: the libraries that are built for the shipped ops, and the ops without an implementation.

Workers have no network and keep nothing: a library that each of them built would cost every judgement as long as it
takes. So what can be built is built before, in the cache that every user of the ops has, and the worker gets a copy of
the files. Implementations are code under judgement: another process imports them, not the judge.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from kernwright.baselines.adapter import Capability
from kernwright.core.errors import EnvironmentProblem, KernwrightError
from kernwright.core.version import __version__
from kernwright.judge.system.sandbox import import_folders
from kernwright.runtime.library import checksum_file
from kernwright.tasks.workload import Workload

DEADLINE_S = 900.0  # every library of a family, on a machine with few processors


class ShippedBuild(BaseModel):
    """The answer of `kernwright.ops.inventory`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    target: str
    backends: dict[str, tuple[str, ...]]
    libraries: tuple[Path, ...]
    unbuilt: dict[str, str]

    def skips(self, op: str) -> str | None:
        """Why there is nothing to judge of an op: its reference would be held against itself."""
        return None if self.backends.get(op) else f"kernwright has no implementation of {op} yet"

    def laid_out(self, folder: Path) -> Path:
        """Copies of the libraries: whatever becomes of the cache, the worker has what was there when it was asked."""
        folder.mkdir(parents=True, exist_ok=True)
        for library in self.libraries:
            for path in (library, checksum_file(library)):
                shutil.copyfile(path, folder / path.name)
                (folder / path.name).chmod(0o644)
        folder.chmod(0o755)
        return folder

    def about(self, ops: Iterable[str]) -> dict[str, Any]:
        """For the record. A library's name ends in the digest of all that it is made of."""
        named = list(ops)
        skipped = {op: why for op in named if (why := self.skips(op))}
        return {
            "package": "kernwright",
            "version": __version__,
            "target": self.target,
            "backends": {op: list(self.backends[op]) for op in named if not self.skips(op)},
            "libraries": [path.name for path in self.libraries],
        } | {name: value for name, value in (("unbuilt", self.unbuilt), ("skipped", skipped)) if value}


def target_of(device: str, capability: Capability | None) -> str:
    return "cpu" if device == "cpu" or capability is None else "sm_{}{}".format(*capability)


def implemented(rows: Sequence[Workload], ready: ShippedBuild) -> tuple[Workload, ...]:
    """The rows that there is something to judge of."""
    found = tuple(row for row in rows if ready.skips(row.op) is None)
    if not found:
        raise KernwrightError(str(ready.skips(rows[0].op)), "choose rows of another op with --rows, or another task")
    return found


_asked: list[ShippedBuild] = []


def find_shipped_build(ops: Sequence[str], target: str) -> ShippedBuild:
    """What these ops have on a target: a GPU's architecture, `cpu`, or `none`, where nothing is to be built.

    Asked once in a process: who will judge many tasks asks for all of their ops at first.
    """
    known = next((found for found in _asked if found.target == target and set(ops) <= found.backends.keys()), None)
    if known is None:
        known = _survey(ops, target)
        _asked.append(known)
    return known


def _survey(ops: Sequence[str], target: str) -> ShippedBuild:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(import_folders())}
    command = [sys.executable, "-P", "-s", "-m", "kernwright.ops.inventory", target, *ops]
    try:
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE_S,
            check=False,
        )  # fmt: skip
        return ShippedBuild.model_validate({"target": target, **json.loads(done.stdout.splitlines()[-1])})
    except subprocess.TimeoutExpired:
        problem = f"no answer within {DEADLINE_S:.0f} s"
    except (ValidationError, ValueError, TypeError, IndexError):
        problem = (done.stderr.strip().splitlines() or ["no answer"])[-1][:300]
    raise EnvironmentProblem(f"kernwright's own ops cannot say what they have: {problem}", "see kernwright explain")
