"""AdmissionFile: the result of `kernwright task check`, kept in the task's folder."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from kernwright.core.digest import Source, code_digest
from kernwright.core.errors import BadFile, EnvironmentProblem
from kernwright.tasks.files import read_text, validate
from kernwright.tasks.task import Task

ADMISSION_FILE = "admission.json"
PACKAGE = Path(__file__).parents[1]
CHECK = ("admission/mutants.py", "admission/admission.py", "judge/numerics/*.py")  # the code that decides a check


class AdmissionFile(BaseModel):
    """The result of the check that the smoke rows of a task reject every mutant of its ops."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    digest: str = Field(description="digest of the task that was checked")
    admitted: bool
    check: str = Field(default="", description="digest of the mutants and of the contracts that they were checked with")


def write_admission(task: Task, admitted: bool) -> None:
    """Write the result of a check. Raise EnvironmentProblem if the folder cannot be written."""
    result = AdmissionFile(digest=task.digest, admitted=admitted, check=check_digest())
    path = task.folder / ADMISSION_FILE
    try:
        path.write_text(json.dumps(result.model_dump()) + "\n", encoding="utf-8")
    except OSError as error:
        raise EnvironmentProblem(
            f"{path} cannot be written: {error.strerror}; the result of the check is not kept",
            f"make {task.folder} writable, or copy the task to another folder",
        ) from None


@cache
def check_digest(package: Path = PACKAGE) -> str:
    """Return the digest of the mutants and of the correctness check that a task is checked with."""
    return code_digest(Source.read(path) for pattern in CHECK for path in package.glob(pattern))


def why_not_admitted(task: Task) -> str | None:
    """Return why a task is not admitted; None if it is."""
    path = task.folder / ADMISSION_FILE
    known = _read(path) if path.is_file() else None
    if known is None:
        return "it was never checked"
    if known.digest != task.digest:
        return "it was changed after its last check"
    if not known.admitted:
        return "its last check refused it"
    return None if known.check == check_digest() else "it was checked with earlier mutants or contracts"


def _read(path: Path) -> AdmissionFile | None:
    """Return the content of the file; None if there is none, or if this package did not write it."""
    try:
        return validate(path, AdmissionFile, json.loads(read_text(path, "")))
    except (BadFile, ValueError):
        return None
