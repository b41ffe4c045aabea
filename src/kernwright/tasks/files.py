"""Read files of a user. An error names the file, the field and the remedy."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError

from kernwright.core.errors import BadFile

Model = TypeVar("Model", bound=BaseModel)


def read_text(path: Path, remedy: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise BadFile(path, "", "does not exist", remedy) from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadFile(path, "", f"cannot be read: {error}", "check its permissions and that it is UTF-8 text") from None


def read_toml(path: Path, model: type[Model], remedy: str) -> Model:
    text = read_text(path, remedy)
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadFile(path, "", f"is not valid TOML: {error}", "mend the line it names") from None
    return validate(path, model, data)


def read_jsonl(path: Path, model: type[Model], remedy: str) -> list[Model]:
    rows = []
    for number, line in enumerate(read_text(path, remedy).splitlines(), 1):
        if not line.strip():
            continue
        rows.append(validate(f"{path}:{number}", model, parse_line(f"{path}:{number}", line)))
    return rows


def parse_line(where: str, line: str) -> Any:
    try:
        return json.loads(line, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise BadFile(where, "", f"is not valid JSON: {error}", "one JSON object a line") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def validate(where: object, model: type[Model], data: Any) -> Model:
    try:
        return model.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
        raise BadFile(where, field, first["msg"] + more, _remedy(first, model)) from None


def _remedy(error: Any, model: type[BaseModel]) -> str:
    match error["type"]:
        case "missing":
            return f"add {error['loc'][-1]}"
        case "extra_forbidden":
            return f"remove it, or use one of: {', '.join(model.model_fields)}"
        case "value_error":
            return "correct the value"
        case _:
            return f"got {str(error.get('input'))[:80]!r}: correct the value"
