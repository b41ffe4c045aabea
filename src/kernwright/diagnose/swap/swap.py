"""Swap: a function of a program and its replacement: an op, a candidate folder, or an adapter."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from kernwright.capture.target import OPS, file_in, problem_with
from kernwright.core.errors import KernwrightError, did_you_mean

Source = Literal["op", "candidate", "adapter"]
FORM = (
    "write MODULE:FUNCTION=CANDIDATE, where CANDIDATE is ops.NAME, a candidate folder, or FILE.py:FUNCTION; "
    "ops.NAME and a folder may have arguments: ops.norm_scale_shift(x=hidden_states, scale=mods[0], shift=mods[1])"
)
_CALL = re.compile(r"(?P<name>[^()]+)\((?P<arguments>.*)\)", re.DOTALL)
_ADAPTER = re.compile(r"(?P<file>[^()]+\.py):(?P<function>[A-Za-z_]\w*)")


@dataclass(frozen=True, kw_only=True)
class Swap:
    """One replacement, checked and with absolute paths."""

    target: str  # in the form of `kernwright capture --call`
    text: str  # the candidate as the user wrote it
    source: Source
    arguments: str | None = None  # arguments of the call, in terms of the target's parameters; None binds by name
    op: str = ""  # op, candidate
    definitions: str | None = None  # candidate: the file that defines the op; None for an op that ships
    file: str = ""  # adapter
    function: str = ""  # adapter
    side: Mapping[str, Any] = field(default_factory=dict)  # candidate: what its loader needs

    def as_plan(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def name(self) -> str:
        """A short name of the candidate, for a label."""
        if self.source == "adapter":
            return self.function
        return self.op if self.source == "op" else Path(self.side["folder"]).name


def parse_swap(text: str) -> Swap:
    """Return the swap that an argument of `--swap` asks for.

    Raises:
        KernwrightError: it is malformed, or names something that does not exist.
    """
    target, equals, candidate = text.partition("=")
    if not equals or not candidate.strip():
        raise KernwrightError(f"--swap {text}: names no candidate", FORM)
    _refuse_target(target)
    candidate = candidate.strip()
    if found := _ADAPTER.fullmatch(candidate):
        file = Path(found["file"]).expanduser()
        if not file.is_file():
            raise KernwrightError(f"--swap {text}: the file {file} does not exist", FORM)
        _refuse_missing_function(file, found["function"])
        return Swap(
            target=target, text=candidate, source="adapter", file=str(file.resolve()), function=found["function"]
        )
    called = _CALL.fullmatch(candidate)
    name, arguments = (called["name"].strip(), called["arguments"]) if called else (candidate, None)
    if arguments is not None:
        _refuse_bad_call(text, arguments)
    if name.startswith("ops."):
        return _op(target, candidate, name.removeprefix("ops."), arguments)
    return _candidate(target, candidate, Path(name).expanduser(), arguments)


def _refuse_target(target: str) -> None:
    if problem := problem_with(target):
        raise KernwrightError(f"--swap {target}: {problem}", FORM)
    if target.startswith(OPS):
        raise KernwrightError(f"--swap {target}: torch ops cannot be replaced", "name the function that calls the op")
    if (file := file_in(target)) and not Path(file).is_file():
        raise KernwrightError(f"--swap {target}: the file {file} does not exist", "write its path from this folder")


def _refuse_missing_function(file: Path, function: str) -> None:
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError, OSError) as error:
        raise KernwrightError(f"{file} is not valid Python: {error}", "correct the adapter") from None
    names = [name for node in tree.body for name in _names_in(node)]
    if function not in names and "*" not in names:
        raise KernwrightError(f"{file} has no function {function}", did_you_mean(function, names, "write it there"))


def _names_in(node: ast.stmt) -> list[str]:
    """Return the names that a statement of a module may bind; `*` for names that are unknown."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Assign | ast.AnnAssign):
        return [each.id for each in ast.walk(node) if isinstance(each, ast.Name)]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [(alias.asname or alias.name).partition(".")[0] for alias in node.names]
    return ["*"] if isinstance(node, ast.If | ast.Try | ast.With | ast.For) else []


def _refuse_bad_call(text: str, arguments: str) -> None:
    try:
        ast.parse(f"f({arguments})", mode="eval")
    except SyntaxError as error:
        raise KernwrightError(f"--swap {text}: ({arguments}) is not a list of arguments: {error.msg}", FORM) from None


def _op(target: str, text: str, name: str, arguments: str | None) -> Swap:
    from kernwright.ops import FAMILIES

    if name not in FAMILIES:
        raise KernwrightError(f"--swap {target}: there is no op {name!r}", did_you_mean(name, FAMILIES, FORM))
    return Swap(target=target, text=text, source="op", op=name, arguments=arguments)


def _candidate(target: str, text: str, folder: Path, arguments: str | None) -> Swap:
    from kernwright.tasks.candidate import load_candidate

    found = load_candidate(folder)
    return Swap(
        target=target,
        text=text,
        source="candidate",
        op=found.file.op,
        definitions=_definitions_of(found.file.op),
        arguments=arguments,
        side={
            "kind": "candidate",
            "op": found.file.op,
            "style": found.style,
            "file": found.entry_file,
            "function": found.entry_function,
            "language": found.file.language,
            "folder": str(found.folder),
            "build": found.file.build.model_dump(),
            "build_folder": str(_build_folder(found.digest)),
        },
    )


def _definitions_of(op: str) -> str | None:
    """Return the file of the task that defines an op; None for an op that ships."""
    from kernwright.ops import FAMILIES
    from kernwright.tasks.catalog import list_tasks
    from kernwright.tasks.files import read_toml
    from kernwright.tasks.task import TaskFile

    if op in FAMILIES:
        return None
    for folder in list_tasks().values():
        file = read_toml(folder / "task.toml", TaskFile, "correct the task")
        if file.definitions and f"def {op}(" in (folder / file.definitions).read_text(encoding="utf-8"):
            return str((folder / file.definitions).resolve())
    raise KernwrightError(
        f"the candidate's op {op!r} neither ships nor belongs to a task",
        "run in the folder that has tasks/, set KERNWRIGHT_TASKS, or write an adapter: FILE.py:FUNCTION",
    )


def _build_folder(digest: str) -> Path:
    from kernwright.runtime.library import cache_folder

    return cache_folder().parent / "swap" / digest[:32]
