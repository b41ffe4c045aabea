"""The form of a request on its way to a server: plain data, with every path absolute."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from kernwright.judge.judge_request import JudgeRequest
from kernwright.ledger.ledger import default_ledger_root
from kernwright.tasks.catalog import find_task_folder

ADAPTER: TypeAdapter[JudgeRequest] = TypeAdapter(JudgeRequest)
SENT = frozenset(field.name for field in fields(JudgeRequest)) - {"output"}


class BadForm(Exception):
    """A request that no client sends."""


def resolved(request: JudgeRequest) -> JudgeRequest:
    """Return the request with paths that do not depend on this process's folder and environment."""
    return replace(
        request,
        task=str(find_task_folder(request.task).absolute()),
        candidate=None if request.candidate is None else Path(os.path.abspath(request.candidate)),  # noqa: PTH100
        ledger=Path(os.path.abspath(request.ledger or default_ledger_root())),  # noqa: PTH100 - keeps links
        command=request.command or shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
    )


def to_form(request: JudgeRequest) -> dict[str, Any]:
    """Return a request as plain data."""
    values = {name: value for name, value in asdict(replace(request, output=None)).items() if name in SENT}
    return {name: str(value) if isinstance(value, Path) else value for name, value in values.items()}


def from_form(form: dict[str, Any]) -> JudgeRequest:
    """Return the request of a form. Raises BadForm for an unknown field, a wrong type or a relative path."""
    if unknown := sorted(form.keys() - SENT):
        raise BadForm(f"unknown field {unknown[0][:80]!r}")
    try:
        request = ADAPTER.validate_python(form)
    except ValidationError as error:
        first = error.errors()[0]
        raise BadForm(f"{'.'.join(map(str, first['loc']))}: {first['msg']}"[:300]) from None
    for path in (request.task, request.candidate, request.ledger):
        if path is not None and not Path(path).is_absolute():
            raise BadForm(f"{str(path)[:80]!r} is not an absolute path")
    return request
