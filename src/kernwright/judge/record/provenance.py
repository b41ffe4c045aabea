"""Provenance: the one record of where a verdict comes from."""

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
LIBRARIES = ("torch", "triton", "apache-tvm-ffi", "numpy", "scipy", "pydantic")


class Provenance(BaseModel):
    """Everything that a reader needs to repeat a run or to doubt it."""

    model_config = ConfigDict(extra="forbid")

    kernwright: str = __version__
    judge: str = Field(default="", description="digest of the judge's own code; none in records of before it was taken")
    command: str
    seed: int
    host: str
    hardware: dict[str, Any]
    libraries: dict[str, str]
    policy: dict[str, Any]
    sources: dict[str, str] = Field(description="hash of every file of the candidate and of every op's definition")
    baseline: dict[str, Any] = Field(
        default_factory=dict, description="of a published package: wheel, file and function per op, kernels to launch"
    )
    contender: dict[str, Any] = Field(
        default_factory=dict,
        description="the same, of a package in a candidate's place; of the ops that ship: target, backends, libraries",
    )
    together: list[dict[str, str]] = Field(
        default_factory=list,
        description="the other pairs of the same judgement, baseline and candidate by name: they shared its quads",
    )
    compiled: dict[str, Any] = Field(
        default_factory=dict,
        description="by side, what compilers had made for an earlier worker of it and this one found: key, files",
    )
    device: str
    state_before: dict[str, Any] = Field(default_factory=dict)
    state_after: dict[str, Any] = Field(default_factory=dict)
    isolation: dict[str, Any] = Field(default_factory=dict)
    block_loop: str = Field(default="", description="`python` on a GPU, and where there is no C compiler")
    rounds: int | None = Field(default=None, description="that rows were given at most, where fewer than the policy's")
    slowed: int = Field(
        default=0, description="times that a row was begun anew, since the device's memory was slower than it had been"
    )
    kept_awake: int | None = Field(default=None, description="the workers' processor, if a keep-alive ran there")
    started: str = ""
    finished: str = ""
    seconds: dict[str, float] = Field(
        default_factory=dict, description="that parts of the judgement took, all pairs and rows of it together"
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
    """Return the digest of the judge's code: figures of one judge say nothing about another's."""
    files = (path for path in folder.rglob("*") if path.suffix in (PYTHON, *C_SUFFIXES))
    return code_digest(map(Source.read, files))


def command_line() -> str:
    return shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
