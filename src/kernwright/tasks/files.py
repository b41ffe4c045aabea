"""Read files of a user. An error names the file, the line, the field and the remedy; all errors of a file at once."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError

from kernwright.core.errors import BadFile, FileProblems, did_you_mean

Model = TypeVar("Model", bound=BaseModel)
Location = Sequence[int | str]


def read_text(path: Path, remedy: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise BadFile(path, "", "does not exist", remedy) from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadFile(path, "", f"cannot be read: {error}", "check its permissions and that it is UTF-8 text") from None


def require_plain(path: Path) -> None:
    """Raise BadFile if a path leads to a pipe, a socket or a device: reading it might never end."""
    if path.exists() and not path.is_file():
        raise BadFile(path, "", "is not a plain file", "replace it by a plain file")


def read_toml(path: Path, model: type[Model], remedy: str) -> Model:
    require_plain(path)
    text = read_text(path, remedy)
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadFile(path, "", f"is not valid TOML: {error}", "correct the line that it names") from None
    return validate(path, model, data, lambda location: toml_line(text, location))


def read_jsonl(path: Path, model: type[Model], remedy: str) -> dict[int, Model]:
    """Return the objects of a file by line number. Empty lines are skipped."""
    require_plain(path)
    found, problems = {}, FileProblems()
    for number, line in enumerate(read_text(path, remedy).splitlines(), 1):
        if line.strip():
            with problems.collected():
                found[number] = validate(f"{path}:{number}", model, parse_line(f"{path}:{number}", line))
    problems.raise_any()
    return found


def parse_line(where: str, line: str) -> Any:
    try:
        return json.loads(line, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise BadFile(where, "", f"is not valid JSON: {error}", "write one JSON object per line") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def validate(
    where: object, model: type[Model], data: Any, line_of: Callable[[Location], int | None] = lambda _: None
) -> Model:
    """Return the model of plain data.

    Args:
        where: the file, or the file and the line.
        line_of: the line of a field, if the data spans several.

    Raises:
        BadFile: with every problem of the data.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        problems = FileProblems()
        by_field: dict[str, Any] = {}
        for each in error.errors():
            location = _location(each["loc"], data)
            field = ".".join(map(str, location))
            if field in by_field:  # the alternatives of a union fail one by one
                continue
            by_field[field] = each
            line = line_of(location)
            place = where if line is None else f"{where}:{line}"
            problems.add([BadFile(place, field, each["msg"], _remedy(each, model))])
        problems.raise_any()
        raise  # not reached: a ValidationError has at least one error


def _location(parts: Location, data: Any) -> Location:
    """Return the location of an error in the data, without the names of the types that pydantic adds to it."""
    kept: list[int | str] = []
    for part in parts:
        if isinstance(data, dict):
            data = data.get(part)
        elif isinstance(data, list) and isinstance(part, int):
            data = data[part]
        else:
            break
        kept.append(part)
    return kept


def toml_line(text: str, location: Location) -> int | None:
    """Return the number of the line that holds a field, or else the nearest table above it. None for the file itself.

    The search reads keys and table headers at the start of lines, which is how these files are written.
    """
    wanted = [str(part) for part in location if isinstance(part, str)]
    best, depth, table = None, 0, []
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[+\s*([\w.\"'-]+)\s*\]", line):
            path = table = _keys(header[1])
        elif key := re.match(r"\s*([\w.\"'-]+)\s*=", line):
            path = table + _keys(key[1])
        else:
            continue
        if len(path) > depth and path == wanted[: len(path)]:
            best, depth = number, len(path)
    return best


def _keys(dotted: str) -> list[str]:
    return [part.strip("\"'") for part in dotted.split(".")]


def _remedy(error: Any, model: type[BaseModel]) -> str:
    match error["type"]:
        case "missing":
            return f"add {error['loc'][-1]}"
        case "extra_forbidden":
            known = _fields_at(model, error["loc"][:-1])
            return did_you_mean(str(error["loc"][-1]), known, f"remove it, or use one of: {', '.join(known)}")
        case "value_error":
            return "correct the value"
        case _:
            return f"got {str(error.get('input'))[:80]!r}: correct the value"


def _fields_at(model: type[BaseModel], location: Location) -> list[str]:
    """Return the fields of the model at a location, or else of the outermost one."""
    own: Any = model
    for part in location:
        field = own.model_fields.get(str(part)) if isinstance(own, type) and issubclass(own, BaseModel) else None
        own = field.annotation if field else None
    return list((own if isinstance(own, type) and issubclass(own, BaseModel) else model).model_fields)
