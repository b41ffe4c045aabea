"""ShippedBuild: the libraries that are built for the shipped ops, and the ops without an implementation.

Workers keep nothing, so a library built in a worker would be built again in every judgement. The judge therefore has
all libraries built beforehand in the user's cache, and gives the worker copies. Implementations are code under
judgement: a separate process imports them, never the judge.
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
from kernwright.core.runtime_interface import checksum_file
from kernwright.core.version import __version__
from kernwright.judge.system.sandbox import import_folders
from kernwright.tasks.workload import Workload

DEADLINE_S = 900.0  # enough to build all libraries of a family on few processors


class ShippedBuild(BaseModel):
    """The answer of `kernwright.ops.inventory`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    target: str
    backends: dict[str, tuple[str, ...]]
    libraries: tuple[Path, ...]
    unbuilt: dict[str, str]

    def skips(self, op: str) -> str | None:
        """Return why an op is not judged: it has no implementation, so its reference would be compared with itself."""
        return None if self.backends.get(op) else f"kernwright has no implementation of {op} yet"

    def laid_out(self, folder: Path) -> Path:
        """Copy the libraries into a folder, so that later changes of the cache do not reach the worker."""
        folder.mkdir(parents=True, exist_ok=True)
        for library in self.libraries:
            for path in (library, checksum_file(library)):
                shutil.copyfile(path, folder / path.name)
                (folder / path.name).chmod(0o644)
        folder.chmod(0o755)
        return folder

    def about(self, ops: Iterable[str]) -> dict[str, Any]:
        """Return the record of the build. A library's name ends in the digest of its sources."""
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
    """Return the rows whose op has an implementation."""
    found = tuple(row for row in rows if ready.skips(row.op) is None)
    if not found:
        raise KernwrightError(str(ready.skips(rows[0].op)), "choose rows of another op with --rows, or another task")
    return found


_asked: list[ShippedBuild] = []


def find_shipped_build(ops: Sequence[str], target: str) -> ShippedBuild:
    """Return the build of these ops for a target: a GPU architecture, `cpu`, or `none` to build nothing.

    The answer is cached per process. A sweep over many tasks should ask for all of their ops first.
    """
    known = next((found for found in _asked if found.target == target and set(ops) <= found.backends.keys()), None)
    if known is None:
        known = _inventory(ops, target)
        _asked.append(known)
    return known


def _inventory(ops: Sequence[str], target: str) -> ShippedBuild:
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
    raise EnvironmentProblem(
        f"the inventory of the shipped ops failed: {problem}", "run `kernwright explain OP` to see the cause"
    )
