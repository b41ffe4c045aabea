"""EagerCopy: the definition of an op as a file of its own, with all helpers that it calls. It is correct for any op."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType, FunctionType, ModuleType
from typing import Any

from kernwright.core.errors import KernwrightError
from kernwright.core.plain_text import scalar_literal

OURS = "kernwright."


def eager_copy(op: Any) -> str:
    """Return Python source with the definition of an op and its helpers, without imports of Kernwright.

    Raises:
        KernwrightError: a helper or a constant has no source that could be copied.
    """
    copy = _EagerCopy(op.name)
    copy.visit(op.name, op.reference)
    parts = ["from __future__ import annotations\n", "\n".join(sorted(copy.imports))]
    parts += [f"{name} = {value}" for name, value in copy.constants.items()]
    return "\n\n\n".join([*parts, *copy.functions.values()]) + "\n"


@dataclass
class _EagerCopy:
    """The parts of the file. Functions and constants have the names that the code uses."""

    op: str
    imports: set[str] = field(default_factory=set)
    constants: dict[str, str] = field(default_factory=dict)
    functions: dict[str, str] = field(default_factory=dict)
    known: dict[str, Any] = field(default_factory=dict)

    def visit(self, name: str, function: FunctionType) -> None:
        """Add a function, after everything that it refers to."""
        node = self._source(name, function)
        self.functions[name] = ""  # a helper may call itself
        for used in sorted({each.id for each in ast.walk(node) if isinstance(each, ast.Name)} - {name}):
            if used in function.__globals__:
                self._add(used, function.__globals__[used], function, used in _loaded(node, function))
        self.functions[name] = self.functions.pop(name) or ast.unparse(node)

    def _add(self, name: str, found: Any, user: FunctionType, is_loaded: bool) -> None:
        if self.known.setdefault(name, found) is not found:
            raise self._refusal(name, "means two things in different files")
        own = inspect.unwrap(found) if callable(found) else None
        if isinstance(found, ModuleType):
            self.imports.add(f"import {found.__name__} as {name}" if found.__name__ != name else f"import {name}")
        elif isinstance(found, type) and not is_loaded and _is_ours(found, user):
            return  # an annotation
        elif isinstance(own, FunctionType) and _is_own(own, user):
            if is_loaded and name not in self.functions:
                self.visit(name, own)
        elif getattr(found, "__name__", None) and getattr(found, "__module__", None) and not _is_ours(found, user):
            self.imports.add(f"from {found.__module__} import {found.__name__}{_renamed(found, name)}")
        elif is_loaded:
            self.constants[name] = self._constant(name, found)

    def _source(self, name: str, function: FunctionType) -> ast.stmt:
        """Return the statement that defines a function: a `def`, or the assignment of a lambda."""
        try:
            node = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
        except (OSError, SyntaxError):
            node = ast.Pass()
        if isinstance(node, ast.FunctionDef):
            node.name = name
            if name == self.op:
                node.decorator_list = []
            return node
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
            node.targets = [ast.Name(name, ast.Store())]
            return node
        raise self._refusal(name, "has no source as a def")

    def _constant(self, name: str, value: Any) -> str:
        import torch

        if value is None or isinstance(value, bool | int | float | str):
            return scalar_literal(value)
        try:
            is_equal = bool(eval(repr(value), {"torch": torch}) == value)
        except Exception:  # any text that is no expression of this value
            is_equal = False
        if not is_equal:
            raise self._refusal(name, f"is a {type(value).__name__}, which has no literal")
        if "torch." in repr(value):
            self.imports.add("import torch")
        return repr(value)

    def _refusal(self, name: str, reason: str) -> KernwrightError:
        return KernwrightError(
            f"the eager chain of {self.op} cannot be copied: {name} {reason}", f"move {name} into the definition"
        )


def _loaded(node: ast.stmt, function: FunctionType) -> set[str]:
    """Return the names that a function takes from its file when it is defined or called."""
    found = {name for code in _codes(function.__code__) for name in code.co_names}
    if isinstance(node, ast.FunctionDef):
        outside = [*node.args.defaults, *filter(None, node.args.kw_defaults), *node.decorator_list]
        found |= {each.id for value in outside for each in ast.walk(value) if isinstance(each, ast.Name)}
    return found


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _codes(inner)


def _renamed(found: Any, name: str) -> str:
    return f" as {name}" if found.__name__ != name else ""


def _is_ours(found: Any, user: FunctionType) -> bool:
    return str(found.__module__).startswith(OURS) or found.__module__ == user.__module__


def _is_own(found: FunctionType, user: FunctionType) -> bool:
    return found.__module__.startswith(OURS) or found.__globals__ is user.__globals__
