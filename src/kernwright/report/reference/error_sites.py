"""ErrorSite: one place in the sources that makes an error with a cause and a remedy, read from the syntax tree."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

from kernwright.core.digest import BLOCKS

ROOT_CLASS = "KernwrightError"
SEVERAL = "BadFiles"  # the messages of other errors in one
POSITIONS = {"BadFile": (2, 3), "BadArgument": (1, 2)}  # positions of cause and remedy; 0 and 1 in all other classes
PREFIXES = {"BadFile": "{file}: ", "BadArgument": "{argument}: "}
UNNAMED = "..."
_CLASS = re.compile(r"^class (\w+)\(([^)]*)\)", re.MULTILINE)


@dataclass(frozen=True, order=True)
class ErrorSite:
    """One error. Its texts have the names of the values that a message shows, such as {path}.

    Attributes:
        package: the package below kernwright, such as judge.
        remedy: empty if this error has no remedy of its own.
    """

    package: str
    cause: str
    remedy: str


@cache
def error_sites(folder: Path) -> tuple[ErrorSite, ...]:
    """Return the errors that the sources in a folder can raise, sorted, each text once."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.py"))}
    kinds = _errors_among({name: bases for text in texts.values() for name, bases in _CLASS.findall(text)})
    named = re.compile(rf"\b(?:{'|'.join(sorted(kinds))})\b")
    trees = {path: ast.parse(text) for path, text in texts.items() if named.search(text)}  # parsing takes most time
    classes = {
        node.name: node for tree in trees.values() for node in _statements(tree) if isinstance(node, ast.ClassDef)
    }
    found = set()
    for path, tree in trees.items():
        package = path.relative_to(folder).parts[0].removesuffix(".py")
        for call, scope in _calls(tree, []):
            if own := _texts(call, scope, classes, kinds):
                cause, remedy = (" ".join(text.split()) for text in own)
                # A message that consists of values alone repeats another error.
                if any(letter.isalpha() for letter in _without_names(cause)):
                    found.add(ErrorSite(package, cause, remedy))
    return tuple(sorted(found))


def _errors_among(bases: Mapping[str, str]) -> set[str]:
    kinds = {ROOT_CLASS}
    while more := {name for name, text in bases.items() if kinds & set(re.findall(r"\w+", text))} - kinds:
        kinds |= more
    return kinds


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements below a node. Most nodes of a tree are expressions, which have none."""
    for field in BLOCKS:
        for inner in getattr(node, field, ()):
            yield inner
            yield from _statements(inner)


def _calls(node: ast.AST, scope: Sequence[ast.AST]) -> Iterator[tuple[ast.Call, Sequence[ast.AST]]]:
    """Yield the calls below a node, each with the module, classes and functions around it, the innermost last."""
    if isinstance(node, ast.Call):
        yield node, scope
    inner = [*scope, node] if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) else scope
    for child in ast.iter_child_nodes(node):
        yield from _calls(child, inner)


def _texts(
    call: ast.Call, scope: Sequence[ast.AST], classes: Mapping[str, ast.ClassDef], kinds: set[str]
) -> tuple[str, str] | None:
    """Return cause and remedy of an error that a call makes; None if the call makes none."""
    name = _last(call.func)
    if name == "__init__":  # super().__init__(cause, remedy) of a class that composes its own texts
        owner = next((node for node in reversed(scope) if isinstance(node, ast.ClassDef)), None)
        if owner is None or owner.name not in kinds - {ROOT_CLASS, SEVERAL, *POSITIONS}:
            return None
        composer = ROOT_CLASS
    elif name in kinds and (composer := _composer(name, classes)) in {ROOT_CLASS, *POSITIONS}:
        pass
    else:
        return None
    texts = [_shown(node, scope) for node in call.args]
    named = {each.arg: _shown(each.value, scope) for each in call.keywords}
    first, second = POSITIONS.get(composer, (0, 1))
    cause = texts[first] if len(texts) > first else named.get("cause", "")
    remedy = texts[second] if len(texts) > second else named.get("remedy", "")
    return PREFIXES.get(composer, "") + cause, remedy


def _composer(name: str, classes: Mapping[str, ast.ClassDef]) -> str:
    """Return the class that composes the texts of an error: itself, or the nearest base with a constructor."""
    while name in classes and not any(getattr(each, "name", "") == "__init__" for each in classes[name].body):
        name = next((_last(base) for base in classes[name].bases if _last(base) in classes), ROOT_CLASS)
    return name


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _shown(node: ast.expr, scope: Sequence[ast.AST]) -> str:
    """Return a text as a reader sees it, with names in braces for the values in it."""
    match node:
        case ast.Constant(value=value):
            return str(value)
        case ast.JoinedStr(values=values):
            return "".join(_shown(each, scope) for each in values)
        case ast.FormattedValue(value=value):
            return _shown(value, scope) if isinstance(value, ast.Name) else f"{{{_name(value)}}}"
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            return _shown(left, scope) + _shown(right, scope)
        case ast.IfExp(body=body):
            return _shown(body, scope)
        case ast.Name(id=name) if (text := _assigned(name, scope)) is not None:
            return text
        case ast.Call(func=ast.Name(id="did_you_mean"), args=args):
            rest = f" {_shown(args[2], scope)}" if len(args) > 2 else ""
            return f"did you mean {{close names}}?{rest}"
        case _:
            return f"{{{_name(node)}}}"


def _assigned(name: str, scope: Sequence[ast.AST]) -> str | None:
    """Return the text that a name stands for, if it is assigned once around the call, and is a plain text."""
    for around in reversed(scope):
        values = _assignments(around).get(name, [])
        if len(values) == 1 and isinstance(values[0], ast.Constant | ast.JoinedStr):
            return _shown(values[0], ())
        if values:
            return None
    return None


@lru_cache(maxsize=64)  # errors that follow each other are in the same scopes
def _assignments(around: ast.AST) -> dict[str, list[ast.expr]]:
    """Return all values that are assigned in a scope, by name."""
    found: dict[str, list[ast.expr]] = {}
    for node in _statements(around):
        if isinstance(node, ast.Assign):
            for name in {each.id for each in node.targets if isinstance(each, ast.Name)}:
                found.setdefault(name, []).append(node.value)
    return found


def _name(node: ast.expr) -> str:
    """Return a short name of a value."""
    match node:
        case ast.Name(id=name):
            return name.strip("_")
        case ast.Attribute(value=ast.Name(id="self" | "own" | "each" | "error"), attr=attr) | ast.Attribute(attr=attr):
            return attr.strip("_")
        case ast.Subscript(value=value):
            return _name(value)
        case ast.Call(func=ast.Attribute(value=ast.Constant()), args=[only]):  # ", ".join(names)
            return _name(only)
        case ast.Call(func=ast.Name(id="len" | "str" | "sorted" | "list" | "shown"), args=[only]):
            return _name(only)
        case ast.Call(func=ast.Attribute(value=value)):
            return _name(value)
        case ast.Call(func=func):
            return _name(func)
        case ast.BoolOp(values=[first, *_]) | ast.IfExp(body=first) | ast.BinOp(left=first):
            return _name(first)
        case _:
            return UNNAMED


def _without_names(text: str) -> str:
    outside, depth = "", 0
    for letter in text:
        depth += {"{": 1, "}": -1}.get(letter, 0)
        outside += letter if depth == 0 else ""
    return outside
