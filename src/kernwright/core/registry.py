"""Registry: find an op by name, among the ones that ship or in a file that a task brings along."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import traceback
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING

from pydantic import ValidationError

from kernwright.core.errors import BadFile
from kernwright.core.parsed_op import NeedsImport, OpSchema, ParsedModule, parsed_shipped_ops

if TYPE_CHECKING:
    from kernwright.core.op import Op

SHIPPED = "kernwright.ops"  # imported by name: definitions import core, and core imports nothing of ours
DEFINE_AN_OP = (
    "write `from kernwright.core.op import define` and decorate a function of tensors with "
    '@define(outputs=["y"], activations=["x"]), or let `kernwright task new --draft-op MODULE:FUNCTION` write the file'
)


def schemas_of(definitions: Path | None, used: Iterable[str]) -> Mapping[str, OpSchema]:
    """Return the schemas of all ops that a task may use, without importing torch where the file's text suffices.

    Args:
        definitions: the file that defines the ops; None for the ops that ship.
        used: the ops whose digests the caller needs.
    """
    try:
        parsed = ParsedModule.read(definitions).ops() if definitions else parsed_shipped_ops()
        for name in used:
            if name in parsed:
                _ = parsed[name].digest
        if parsed:
            return parsed
    except SyntaxError as error:
        raise BadFile(
            f"{definitions}:{error.lineno}", "", f"is not valid Python: {error.msg}", "correct the op definitions"
        ) from None
    except (NeedsImport, OSError, ValueError):  # the import finds the ops, or raises an error that names the problem
        pass
    return ops_from_file(definitions) if definitions else shipped_ops()


@cache
def shipped_ops() -> dict[str, Op]:
    """Return every op that ships, by name."""
    return {name: op for family in _families() for name, op in ops_of_family(family).items()}


@cache
def shipped_families() -> dict[str, str]:
    """Return the family of every op that ships, by the op's name."""
    return {name: family for family in _families() for name in ops_of_family(family)}


def _families() -> list[str]:
    return [found.name for found in pkgutil.iter_modules(importlib.import_module(SHIPPED).__path__) if found.ispkg]


@cache
def ops_of_family(family: str) -> dict[str, Op]:
    """Return the ops that a family's definition files define."""
    from kernwright.core.op import ops_in

    package = importlib.import_module(f"{SHIPPED}.{family}")
    found: dict[str, Op] = {}
    for module in pkgutil.iter_modules(package.__path__):
        if module.name == "definition" or module.name.endswith("_definition"):
            found |= ops_in(vars(importlib.import_module(f"{package.__name__}.{module.name}")))
    return found


def ops_from_file(path: Path) -> dict[str, Op]:
    """Import the ops that a task brings along. Tasks are trusted, candidates are not."""
    from kernwright.core.op import ops_in

    spec = importlib.util.spec_from_file_location(f"kernwright_task_ops_{path.parent.name}", path)
    if spec is None or spec.loader is None:
        raise BadFile(path, "", "is not a Python file", "name a .py file under definitions in task.toml")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # a user's file can raise anything; the message names the file
        raise BadFile(path, "", f"cannot be imported: {_reason(error)}", _remedy(error, path)) from error
    ops = ops_in(vars(module))
    if not ops:
        raise BadFile(path, "", _without_ops(module), DEFINE_AN_OP)
    return ops


def _without_ops(module: ModuleType) -> str:
    functions = [name for name, value in vars(module).items() if _is_own_function(value, module)]
    undecorated = f": {', '.join(functions)} has no @define decorator" if functions else ""
    return f"defines no op{undecorated}"


def _is_own_function(value: object, module: ModuleType) -> bool:
    return isinstance(value, FunctionType) and value.__module__ == module.__name__


def _reason(error: Exception) -> str:
    if isinstance(error, ValidationError):  # an error in the arguments of @define
        return "; ".join(str(problem["msg"]).removeprefix("Value error, ") for problem in error.errors())
    return f"{type(error).__name__}: {error}"


def _remedy(error: Exception, path: Path) -> str:
    """Return a remedy with the place to look at: the last line of the file that ran."""
    if isinstance(error, SyntaxError):
        return f"correct line {error.lineno} of {path}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f"correct line {lines[-1]} of {path}" if lines else f"correct {path}"
