"""Provenance: the software, hardware and settings that a verdict was measured with."""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
import shlex
import sys
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from kernwright.baselines.shipped import Shipped
from kernwright.core.digest import C_SUFFIXES, PYTHON, Source, code_digest
from kernwright.core.version import __version__
from kernwright.tasks.candidate import Candidate
from kernwright.tasks.task import Task

JUDGE = Path(__file__).parents[1]
LIBRARIES = ("torch", "triton", "apache-tvm-ffi", "numpy", "pydantic")


class Provenance(BaseModel):
    """Everything that a reader needs to reproduce or to question a run."""

    model_config = ConfigDict(extra="forbid")

    kernwright: str = __version__
    judge: str = Field(default="", description="digest of the judge's code; empty in records that predate the digest")
    command: str
    seed: int
    host: str
    hardware: dict[str, Any]
    libraries: dict[str, str]
    policy: dict[str, Any]
    sources: dict[str, str] = Field(description="digests of the candidate's files and of the op definitions")
    baseline: dict[str, Any] = Field(
        default_factory=dict,
        description="for a published package: wheel, file and function of each op, kernels that it must launch",
    )
    contender: dict[str, Any] = Field(
        default_factory=dict,
        description="the same for a package judged as the candidate; for shipped ops: target, backends, libraries",
    )
    together: list[dict[str, str]] = Field(
        default_factory=list,
        description="names of the other pairs of the judgement, baseline and candidate, which were timed in its quads",
    )
    compiled: dict[str, Any] = Field(
        default_factory=dict,
        description="by role, compiled files of earlier workers that were reused: store key and file names",
    )
    device: str
    state_before: dict[str, Any] = Field(default_factory=dict)
    state_after: dict[str, Any] = Field(default_factory=dict)
    isolation: dict[str, Any] = Field(default_factory=dict)
    block_loop: str = Field(default="", description="loop that ran the blocks; `python` on a GPU or without a compiler")
    rounds: int | None = Field(default=None, description="maximum number of rounds, if lower than the policy's")
    slowed: int = Field(
        default=0, description="number of times that a row was restarted because device memory had become slower"
    )
    kept_awake: int | None = Field(default=None, description="number of the workers' processor if it had a keep-alive")
    started: str = ""
    finished: str = ""
    seconds: dict[str, float] = Field(
        default_factory=dict, description="duration of each part of the judgement, for all its pairs and rows together"
    )


def library_versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def source_hashes(task: Task, candidate: Candidate | Shipped | None) -> dict[str, str]:
    ops = {f"op {name}": op.digest for name, op in task.ops.items()}
    files = candidate.sources if candidate else {}
    return ops | {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}


@cache
def judge_digest(folder: Path = JUDGE) -> str:
    """Return the digest of the judge's code. Times measured by different judges are not comparable."""
    files = (path for path in folder.rglob("*") if path.suffix in (PYTHON, *C_SUFFIXES))
    return code_digest(map(Source.read, files))


def command_line() -> str:
    return shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
