"""AdmissionFile: the result of `kernwright task check`, kept in the task's folder."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from kernwright.core.errors import BadFile
from kernwright.tasks.files import read_text, validate
from kernwright.tasks.task import Task

ADMISSION_FILE = "admission.json"


class AdmissionFile(BaseModel):
    """Whether the smoke rows of a task reject every mutant of its ops."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    digest: str = Field(description="digest of the task that was checked")
    admitted: bool


def write_admission(task: Task, admitted: bool) -> None:
    """Write the result of a check. A folder that cannot be written, such as that of a package, keeps its own."""
    text = json.dumps(AdmissionFile(digest=task.digest, admitted=admitted).model_dump()) + "\n"
    try:
        (task.folder / ADMISSION_FILE).write_text(text, encoding="utf-8")
    except OSError:
        return


def why_not_admitted(task: Task) -> str | None:
    """Return why a task is not admitted; None if it is."""
    path = task.folder / ADMISSION_FILE
    known = _read(path) if path.is_file() else None
    if known is None:
        return "it was never checked"
    if known.digest != task.digest:
        return "it was changed after its last check"
    return None if known.admitted else "its last check refused it"


def _read(path: Path) -> AdmissionFile | None:
    """Return the content of the file; None if it is none that was written here."""
    try:
        return validate(path, AdmissionFile, json.loads(read_text(path, "")))
    except (BadFile, ValueError):
        return None
