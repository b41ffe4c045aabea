"""Digests: how evidence refers to data and to code.

Evidence refers to what a machine executes. Prose and paths are not part of a digest, so a reworded docstring, a
reformatted line, a renamed file or a moved module keeps every record valid:

- Python counts as its syntax tree, without docstrings, comments and formatting.
- C, C++ and CUDA count as their token stream, without comments, white space and the names of included headers of ours.
- The files of a digest are a set of contents. No key of theirs changes when a file moves.
- Imports of our own modules count by the names that they import. A string that is the name of a source file, or a
  dotted name of one of our modules, does not count.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import re
import textwrap
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from kernwright.core.errors import KernwrightError

PYTHON = ".py"
C_SUFFIXES = (".c", ".cc", ".cpp", ".cu", ".cuh", ".h")
PACKAGE = "kernwright"
BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")  # fields of a statement that hold statements

_OWN_MODULE = re.compile(rf"{PACKAGE}(\.\w+)+(:(?P<attribute>\w+))?")
_OWN_FILE = re.compile(r"[\w./-]+\.(py|c|cc|cpp|cu|cuh|h)")
_SPLICED_LINE = re.compile(r"\\\r?\n")
_C_TOKEN = re.compile(
    r"""
    (?P<comment>//[^\n]*|/\*.*?\*/)
  | (?P<raw>(?:u8|[uUL])?R"(?P<delimiter>[^()\\\s]{0,16})\(.*?\)(?P=delimiter)")
  | (?P<string>(?:u8|[uUL])?"(?:\\.|[^"\\\n])*")
  | (?P<character>(?:u8|[uUL])?'(?:\\.|[^'\\\n])+')
  | (?P<number>\.?[0-9](?:[eEpP][+-]|'(?=\w)|[\w.])*)
  | (?P<word>[A-Za-z_]\w*)
  | (?P<newline>\n)
  | (?P<space>[^\S\n]+)
  | (?P<sign><<=|>>=|<=>|->\*|\.\.\.|\#\#|::|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|.)
    """,
    re.DOTALL | re.VERBOSE,
)
_INCLUDE_OF_OURS = re.compile(r'#\s*include\s*"')


@dataclass(frozen=True)
class Source:
    """A file as a digest sees it: its language by suffix, its text, and the package that its imports resolve in."""

    suffix: str
    text: str
    root: Path | None = None

    @classmethod
    def read(cls, path: Path) -> Source:
        root = next((folder for folder in path.resolve().parents if folder.name == PACKAGE), None)
        return cls(path.suffix, path.read_text(encoding="utf-8"), root)

    @property
    def code(self) -> str:
        """Return the text without its prose; the same for every layout, wording and place of the same code."""
        if self.suffix == PYTHON:
            return _python_code(self.text, self.root)
        return _c_code(self.text) if self.suffix in C_SUFFIXES else self.text


def digest_of(value: Mapping[str, Any]) -> str:
    """Return the digest of plain data: independent of key order, of the machine and of the Python version."""
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def code_digest(sources: Iterable[Source], facts: Mapping[str, Any] | None = None) -> str:
    """Return the digest of code: of ops, of the judge, of shipped families and of baseline adapters.

    Args:
        sources: the files, in any order. Files without code (a package's docstring) do not count.
        facts: plain data that belongs to the code, such as the fields of an op.
    """
    contents = (hashlib.sha256(code.encode()).hexdigest() for source in sources if (code := source.code))
    return digest_of({"code": sorted(contents), "facts": dict(facts or {})})


def function_digest(function: Callable[..., Any], facts: Mapping[str, Any] | None = None) -> str:
    """Return the digest of a function and of every function and constant of ours that it refers to.

    The rest of their files does not count, so that an op can join a family without a new digest for the others.
    """
    parts: dict[Any, str] = {}
    _collect_function(inspect.unwrap(function), parts)
    return digest_of({"functions": sorted(parts.values()), "facts": dict(facts or {})})


def folder_digest(files: Mapping[str, bytes]) -> str:
    """Return the digest of a candidate's files, byte by byte and keyed by relative path."""
    return digest_of({name: hashlib.sha256(data).hexdigest() for name, data in files.items()})


def _collect_function(function: Any, parts: dict[Any, str]) -> None:
    """Add a function's tree and all that it refers to, each under its own key."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError) as error:
        name = getattr(function, "__qualname__", repr(function))
        raise KernwrightError(
            f"the source of {name} cannot be read: {error}", "define it with `def` at the top level of a file"
        ) from None
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.decorator_list = [own for own in node.decorator_list if not is_define(own)]
    parts[function] = dumped_code(tree)
    scope = {**function.__globals__, **_captured(function)}
    for name in sorted({node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id in scope}):
        _collect(name, scope[name], function, parts)


def is_define(decorator: ast.expr) -> bool:
    """Return whether a decorator is `define`. Its arguments are the op's fields, which the digest has as facts."""
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return (called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")) == "define"


def _collect(name: str, value: Any, user: Any, parts: dict[Any, str]) -> None:
    value = getattr(value, "reference", value)  # another op, called as a function
    if isinstance(value, types.FunctionType) and not is_foreign(value.__module__):
        function = inspect.unwrap(value)
        text = f"{name} is {function.__name__}"
        if function not in parts:
            _collect_function(function, parts)
    elif isinstance(value, types.ModuleType) and is_foreign(value.__name__):
        text = f"{name} is {value.__name__}"
    elif hasattr(value, "__qualname__") and is_foreign(str(value.__module__)):
        text = f"{name} is {value.__module__}.{value.__qualname__}"
    elif is_plain(value):
        text = f"{name} is {value!r}"
    else:  # a module or a class of ours, or a table: all code of the file that uses it counts
        text = Source.read(Path(str(inspect.getsourcefile(user)))).code
        if isinstance(value, types.ModuleType) and value.__file__:
            text += Source.read(Path(value.__file__)).code
    parts[name, text] = text  # two functions may use one name for different values


def is_plain(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(is_plain, value))
    return value is None or isinstance(value, bool | int | float | str | bytes)


def _captured(function: types.FunctionType) -> dict[str, Any]:
    cells = function.__closure__ or ()
    return {
        name: cell.cell_contents
        for name, cell in zip(function.__code__.co_freevars, cells, strict=True)
        if _is_set(cell)
    }


def _is_set(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:  # the enclosing function has not assigned it yet
        return False


def is_foreign(module: str) -> bool:
    """Return whether a module belongs to a published package, whose version the record names."""
    return module.partition(".")[0] in ("torch", "builtins", "math", "typing", "collections", "functools", "numpy")


@lru_cache(maxsize=1024)  # the same files belong to many ops
def _python_code(text: str, root: Path | None) -> str:
    tree = ast.parse(text)
    modules: set[str] = set()
    imported: set[str] = set()
    for node in _imports(tree.body):
        if node.level or str(node.module).partition(".")[0] == PACKAGE:
            for alias in node.names:
                bound = alias.asname or alias.name
                if _is_module(root, node.module or "", alias.name):
                    modules.add(bound)
                else:
                    imported.add(f"{alias.name} as {bound}")
            node.names = []
    code = _dumped(tree, modules)
    return code + "".join(f"\n{name}" for name in sorted(imported)) if code or imported else ""


def _imports(body: list[Any]) -> Iterator[ast.ImportFrom]:
    """Yield the imports of names among statements. Expressions, most nodes of a tree, have none."""
    for statement in body:
        if isinstance(statement, ast.ImportFrom):
            yield statement
        elif not isinstance(statement, ast.expr):
            for field in BLOCKS:
                if inner := getattr(statement, field, None):
                    yield from _imports(inner)


def _is_module(root: Path | None, package: str, name: str) -> bool:
    if root is None:
        return False
    place = root.parent.joinpath(*package.split("."), name)
    return place.is_dir() or place.with_suffix(PYTHON).is_file()


def dumped_code(tree: ast.Module) -> str:
    """Return the code of a function, without prose, as text that every version of Python agrees on."""
    return _dumped(tree, frozenset())


def _dumped(tree: ast.Module, modules: Set[str]) -> str:
    """Return a tree as text that every version of Python agrees on: fields by name, empty ones left out."""
    written: list[str] = []
    add = written.append

    def write(value: Any) -> None:
        if type(value) is str:
            add(_quoted(value))
        elif type(value) is list:
            add("[")
            for item in value:
                write(item)
            add("]")
        elif isinstance(value, ast.AST):
            write_node(value)
        else:
            add(repr(value))

    def write_node(node: ast.AST) -> None:
        if isinstance(node, ast.ImportFrom) and not node.names:
            return
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            # `module.name` is the name that `from module import name` binds
            add(f"(Name id={_quoted(node.attr)})")
            return
        opening, fields = _layout(type(node).__name__, node._fields)
        add(opening)
        for field, label in fields:
            value = getattr(node, field, None)
            if value is not None and value != []:
                add(label)
                write(_without_docstring(node, value) if field == "body" else value)
        add(")")

    for statement in _without_docstring(tree, tree.body):
        write_node(statement)
    return "".join(written)


@cache
def _layout(kind: str, fields: tuple[str, ...]) -> tuple[str, list[tuple[str, str]]]:
    """Return how a node of this kind begins, and the names and labels of its fields that count."""
    counting = [field for field in fields if field not in ("ctx", "kind", "type_comment")]
    return f"({kind}", [(field, f" {field}=") for field in counting]


def _without_docstring(node: ast.AST, body: Any) -> Any:
    documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    first = body[0] if documented and body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and type(first.value.value) is str:
        return body[1:]
    return body


@lru_cache(maxsize=2**14)  # names occur many times
def _quoted(text: str) -> str:
    return json.dumps(_pathless(text))


def _pathless(text: str) -> str:
    if found := _OWN_MODULE.fullmatch(text):
        return found["attribute"] or ""
    return "" if _OWN_FILE.fullmatch(text) else text


@lru_cache(maxsize=1024)
def _c_code(text: str) -> str:
    """Return the token stream. Directives end with their line, and `#define f(x)` is not `#define f (x)`."""
    text = _SPLICED_LINE.sub("", text)
    lines: list[list[str]] = [[]]
    in_directive, is_apart = False, True
    for found in _C_TOKEN.finditer(text):
        kind, token = found.lastgroup, found.group()
        if kind in ("comment", "space"):
            is_apart = True
        elif kind == "newline":
            if in_directive:
                lines.append([])
                in_directive = False
            is_apart = True
        else:
            if token == "#" and not in_directive and _begins_line(text, found):
                lines.append([])
                in_directive = True
            if in_directive and token == "(" and len(lines[-1]) == 3 and lines[-1][1] == "define" and not is_apart:
                token = "f("  # the parameters of a macro
            lines[-1].append(token)
            is_apart = False
    return "\n".join(joined for line in lines if (joined := " ".join(line)) and not _INCLUDE_OF_OURS.match(joined))


def _begins_line(text: str, found: re.Match[str]) -> bool:
    """Return whether a `#` starts a directive: only white space precedes it on its line."""
    return not text[: found.start()].rpartition("\n")[2].strip()
