"""FunctionSource: the text of a function of the user's program, with the helpers and imports that it needs.

The module of a function is read and not imported, because it may be a script that runs a model. Only the draft that is
made of the function, with copies of its helpers, is executed, by `op_draft`.
"""

from __future__ import annotations

import ast
import os
import site
import symtable
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from kernwright.capture.target import SCRIPT, file_in
from kernwright.core.errors import KernwrightError

INDENT = "    "


@dataclass(frozen=True)
class FunctionSource:
    """A function of a file."""

    file: SourceFile
    node: ast.FunctionDef
    owner: str | None  # the class of a method

    @property
    def parameters(self) -> list[ast.arg]:
        arguments = self.node.args
        return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]

    @property
    def parameter_names(self) -> list[str]:
        """The names of all parameters, with those of `*args` and `**kwargs`."""
        rest = (self.node.args.vararg, self.node.args.kwarg)
        return [each.arg for each in (*self.parameters, *rest) if each is not None]

    @property
    def defaults(self) -> dict[str, ast.expr]:
        arguments = self.node.args
        positional = [*arguments.posonlyargs, *arguments.args]
        of_positional = zip(positional[len(positional) - len(arguments.defaults) :], arguments.defaults, strict=True)
        by_name = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        return {argument.arg: node for argument, node in [*of_positional, *by_name] if node is not None}

    @property
    def instance(self) -> str | None:
        """The name of a method's first parameter, usually `self`; None for a function."""
        plain = {getattr(decorator, "id", "") for decorator in self.node.decorator_list}
        return self.parameters[0].arg if self.owner and self.parameters and "staticmethod" not in plain else None

    @property
    def decorators(self) -> list[str]:
        """The decorators that may change what a call does, as they are written."""
        named = [ast.unparse(decorator) for decorator in self.node.decorator_list]
        return [f"@{name}" for name in named if name not in ("staticmethod", "classmethod")]

    @property
    def summary(self) -> str:
        """The first line of the docstring."""
        lines = (ast.get_docstring(self.node) or "").splitlines()
        return lines[0] if lines else ""

    @cached_property
    def statements(self) -> list[ast.stmt]:
        """The body without the docstring."""
        return self.node.body[1:] if ast.get_docstring(self.node) is not None else self.node.body

    def used_attributes(self) -> list[str]:
        """Return the attributes of `self` that the body reads or writes, in order of their first use."""
        nodes = [node for node in self._walk() if isinstance(node, ast.Attribute)]
        return list(dict.fromkeys(node.attr for node in nodes if getattr(node.value, "id", "") == self.instance))

    def local_names(self) -> set[str]:
        """Return the names that the function binds."""
        stored = {node.id for node in self._walk() if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        return stored | set(self.parameter_names)

    def returned_names(self) -> list[list[str]]:
        """Return the names in each return statement that returns only names."""
        found = []
        for node in self._walk():
            if isinstance(node, ast.Return) and node.value is not None:
                items = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
                names = [item.id for item in items if isinstance(item, ast.Name)]
                if len(names) == len(items):
                    found.append(names)
        return found

    def body(self, attributes: dict[str, str]) -> list[str]:
        """Return the lines of the body, dedented.

        Args:
            attributes: by attribute of `self`, the name that replaces it.
        """
        if not self.statements:
            return ["pass"]
        edits = [*_float64_edits(self.statements), *self._attribute_edits(attributes)]
        return self.file.lines_of(self.statements, edits, self.node.lineno)

    def _attribute_edits(self, attributes: dict[str, str]) -> Iterator[Edit]:
        for node in self._walk():
            if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == self.instance:
                yield Edit.at(node, attributes[node.attr])

    def _walk(self) -> Iterator[ast.AST]:
        return (node for statement in self.statements for node in ast.walk(statement))

    def global_names(self, before: str = "") -> set[str]:
        """Return the names that the body takes from its file.

        Args:
            before: statements that are written before the body.
        """
        given = [ast.arg(name) for name in self.parameter_names]
        arguments = ast.arguments(posonlyargs=[], args=given, kwonlyargs=[], kw_defaults=[], defaults=[])
        body = [*ast.parse(before).body, *self.statements] or [ast.Pass()]
        return _global_names(ast.FunctionDef(self.node.name, arguments, body, [], lineno=1)) - {self.node.name}

    def needed_code(self, before: str = "") -> CopiedCode:
        """Return the imports, helpers and constants that the body, and the statements before it, refer to."""
        found = CopiedCode()
        self.file.gather(self.global_names(before), found)
        return found


@dataclass
class CopiedCode:
    """Code that a copied function needs: imports of packages, and copied helpers by name."""

    imports: dict[str, None] = field(default_factory=dict)  # sets that keep their order
    helpers: dict[str, str] = field(default_factory=dict)
    files: dict[str, None] = field(default_factory=dict)
    own_modules: dict[str, None] = field(default_factory=dict)  # modules of the user's project that stay imported


@dataclass(frozen=True)
class Edit:
    """A replacement of a part of a file's text, in bytes."""

    line: int
    column: int
    end_line: int
    end_column: int
    text: str

    @classmethod
    def at(cls, node: ast.expr, text: str) -> Edit:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return cls(node.lineno, node.col_offset, node.end_lineno, node.end_col_offset, text)


def _float64_edits(nodes: Sequence[ast.AST]) -> Iterator[Edit]:
    """Replace `x.float()` by `wide(x)`, so that the same code runs in float64 as the oracle."""
    for call in (found for node in nodes for found in ast.walk(node) if is_cast_to_float(found)):
        assert isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
        value = call.func.value
        start, end = Edit.at(value, ""), Edit.at(call, "")
        yield Edit(start.line, start.column, start.line, start.column, "wide(")
        yield Edit(start.end_line, start.end_column, end.end_line, end.end_column, ")")


def is_cast_to_float(node: ast.AST) -> bool:
    """Return whether a node is `x.float()` or `x.to(torch.float32)`."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    given = [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg == "dtype")]
    if node.func.attr == "float":
        return not node.args and not node.keywords
    is_to = node.func.attr in ("to", "type") and len(given) == len(node.args) + len(node.keywords) == 1
    return is_to and ast.unparse(given[0]) in ("torch.float32", "torch.float")


def _global_names(statement: ast.stmt) -> set[str]:
    """Return the names that a statement takes from its file; parameters and variables of functions are none."""
    tables = [symtable.symtable(ast.unparse(ast.Module([statement], [])), "", "exec")]
    found = set()
    while tables:
        table = tables.pop()
        tables += table.get_children()
        is_file = table.get_type() == "module"
        found |= {
            each.get_name() for each in table.get_symbols() if each.is_referenced() and (is_file or each.is_global())
        }
    return found


@dataclass(frozen=True)
class SourceFile:
    """A Python file of the user's project."""

    path: Path

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        try:
            return ast.parse(self.text)
        except SyntaxError as error:
            raise KernwrightError(f"{self.path}:{error.lineno}: {error.msg}", "correct the line") from None

    @cached_property
    def definitions(self) -> dict[str, ast.stmt]:
        """The top-level statement that defines each name; of several, the last. A script's main block defines none."""
        body = [statement for statement in self.tree.body if not _is_main_block(statement)]
        return {name: statement for statement in body for name in _defined_by(statement)}

    def function(self, path: Sequence[str]) -> FunctionSource:
        body: list[ast.stmt] = self.tree.body
        for owner in path[:-1]:
            classes = [s for s in body if isinstance(s, ast.ClassDef) and s.name == owner]
            if not classes:
                raise KernwrightError(f"{self.path} has no class {owner}", "name a function or method of the file")
            body = classes[-1].body
        found = [s for s in body if isinstance(s, ast.FunctionDef) and s.name == path[-1]]
        if not found:
            known = [s.name for s in body if isinstance(s, ast.FunctionDef)]
            owner = f"class {path[-2]} of {self.path}" if len(path) > 1 else str(self.path)
            inherited = "; name the class that it inherits the method from" if len(path) > 1 else ""
            raise KernwrightError(
                f"{owner} has no `def {path[-1]}`", f"its functions are: {', '.join(known) or '(none)'}{inherited}"
            )
        return FunctionSource(self, found[-1], path[-2] if len(path) > 1 else None)

    def gather(self, names: set[str], found: CopiedCode) -> None:
        """Add the statements that define these names, and everything that those refer to."""
        statements = {id(s): s for name in names if (s := self.definitions.get(name))}
        for statement in sorted(statements.values(), key=lambda s: s.lineno):
            bound = set(_defined_by(statement)) & names
            if isinstance(statement, ast.Import | ast.ImportFrom):
                self._gather_import(statement, bound, found)
            elif not bound <= set(found.helpers):
                for name in bound:
                    found.helpers.setdefault(name, "")  # a function may call itself
                self.gather(_global_names(statement) - set(found.helpers), found)
                text = "\n".join(self.lines_of([statement], list(_float64_edits([statement])), 0))
                for name in sorted(bound):  # removed and added again: after the helpers that it refers to
                    found.helpers.pop(name)
                    found.helpers[name] = text
                found.files[str(self.path)] = None

    def _gather_import(self, statement: ast.Import | ast.ImportFrom, bound: set[str], found: CopiedCode) -> None:
        aliases = [alias for alias in statement.names if _bound_by(alias) in bound]
        if isinstance(statement, ast.Import):
            for alias in aliases:
                found.imports[ast.unparse(ast.Import([alias]))] = None
                if own_file(alias.name.split("."), [self.path.parent]):
                    found.own_modules[alias.name] = None
            return
        for alias in aliases:
            file = self._imported_file(statement)
            if file is None:
                found.imports[ast.unparse(ast.ImportFrom(statement.module, [alias], statement.level))] = None
            elif alias.name in (other := SourceFile(file)).definitions:
                other.gather({alias.name}, found)
                if alias.asname and alias.asname != alias.name:
                    found.helpers[alias.asname] = f"{alias.asname} = {alias.name}"
            else:  # a submodule
                found.imports[ast.unparse(ast.ImportFrom(statement.module, [alias], 0))] = None
                found.own_modules[f"{statement.module or ''}.{alias.name}".strip(".")] = None

    def _imported_file(self, statement: ast.ImportFrom) -> Path | None:
        """Return the file of the user's project that a statement imports from; None for an installed package."""
        words = statement.module.split(".") if statement.module else []
        if statement.level:
            return own_file(words, [self.path.resolve().parents[statement.level - 1]])
        return own_file(words, [self.path.parent])

    def lines_of(self, statements: Sequence[ast.stmt], edits: Sequence[Edit], after: int) -> list[str]:
        """Return the lines of statements, edited and dedented, with the comments directly above them.

        Args:
            after: the line before which no comment belongs to the statements.
        """
        first, last = statements[0], statements[-1]
        decorators = getattr(first, "decorator_list", [])
        start = min([first.lineno, *(decorator.lineno for decorator in decorators)])
        lines = [line.encode() for line in self.text.split("\n")]
        while start - 2 >= after and lines[start - 2].lstrip().startswith(b"#"):
            start -= 1
        assert last.end_lineno is not None
        end = last.end_lineno
        for edit in sorted(edits, key=lambda e: (e.line, e.column, e.end_line, e.end_column), reverse=True):
            head, tail = lines[edit.line - 1][: edit.column], lines[edit.end_line - 1][edit.end_column :]
            joined = head + edit.text.encode() + tail
            lines[edit.line - 1 : edit.end_line] = [joined] + [b"\0"] * (edit.end_line - edit.line)
        if first.lineno == after:  # `def f(x): return x`, all in one line
            lines[start - 1] = b" " * first.col_offset + lines[start - 1][first.col_offset :]
        taken = [line.decode() for line in lines[start - 1 : end] if line != b"\0"]
        return [line[min(first.col_offset, len(line) - len(line.lstrip())) :] for line in taken]


def _defined_by(statement: ast.stmt) -> list[str]:
    """Return the names that a top-level statement defines."""
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return [_bound_by(alias) for alias in statement.names]
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [statement.name]
    if isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        return [node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)]
    if isinstance(statement, ast.If | ast.Try | ast.With):
        inner = [node for node in ast.walk(statement) if isinstance(node, ast.stmt) and node is not statement]
        return [name for node in inner for name in _defined_by(node)]
    return []


def _is_main_block(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and "__name__" in {
        getattr(node, "id", "") for node in ast.walk(statement.test)
    }


def _bound_by(alias: ast.alias) -> str:
    return alias.asname or alias.name.partition(".")[0]


def find_source(target: str, program: str) -> FunctionSource | None:
    """Return the source of a capture target; None for a function of an installed package.

    Args:
        program: the name of the program in the capture, for targets of the form `__main__:function`.
    """
    module, _, path = target.rpartition(":")
    if (file := file_in(target)) is None and module == SCRIPT:
        file = program
    if file is not None:
        if not file.endswith(".py") or not Path(file).is_file():
            remedy = "run this in the folder of the script, and capture with --call SCRIPT.py:FUNCTION"
            raise KernwrightError(f"--draft-op {target}: the script {file} is not in this folder", remedy)
        return SourceFile(Path(file)).function(path.split("."))
    words = module.split(".")
    own = own_file(words, [Path.cwd(), *map(Path, filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))])
    if own is not None:
        return SourceFile(own).function(path.split("."))
    if _file_in(words, [Path(entry) for entry in sys.path if entry]) or words[0] in sys.builtin_module_names:
        return None
    raise KernwrightError(
        f"--draft-op {target}: the module {module} was not found",
        "run this in the folder of the program, or name that folder in PYTHONPATH",
    )


def own_file(words: Sequence[str], roots: Sequence[Path]) -> Path | None:
    """Return the file of a module of the user's project; None if there is none, or if it is an installed package."""
    file = _file_in(words, [*roots, *(Path(entry) for entry in sys.path if entry)])
    if file is None:
        return None
    paths = (file.absolute(), file.resolve())  # an installer may link files of a package to its cache
    return None if any(path.is_relative_to(place) for path in paths for place in _installed_places()) else file


def _file_in(words: Sequence[str], roots: Sequence[Path]) -> Path | None:
    for root in roots:
        place = root.joinpath(*words)
        for file in (place.with_name(f"{place.name}.py"), place / "__init__.py"):
            if file.is_file():
                return file
        if words and place.is_dir() and any(place.glob("*.so")):
            return place
    return None


def _installed_places() -> list[Path]:
    """Return the folders of installed packages, of the standard library and of Kernwright."""
    folders = [*site.getsitepackages(), site.getusersitepackages(), str(Path(__file__).parents[1])]
    folders += [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    return [place for folder in folders for place in (Path(folder), Path(folder).resolve())]
