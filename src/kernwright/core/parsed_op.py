"""ParsedOp: the schema and the digest of an op, read from the syntax tree of its definition.

An op is a torch function, and importing torch takes seconds. Listing a task needs only names, parameters and digests,
which follow from the file's text as long as the file is written in the usual way: ops are functions under `@define`
with literal arguments, and they refer to functions, literals and foreign modules. Any other file raises
`NeedsImport`, and the caller imports it instead.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any, Protocol, cast

from kernwright.core.digest import PACKAGE, digest_of, dumped_code, is_define, is_foreign, is_plain
from kernwright.core.errors import BadFile, FileProblems, did_you_mean

ROOT = Path(__file__).resolve().parents[1]
IMPLICIT_NAMES = frozenset({"__name__", "__file__", "__doc__", "__package__", "__spec__", "__loader__", "__builtins__"})
DEFAULTS = {"contract": "close", "inplace": (), "indices": {}, "propagates_nonfinite": True}
FIELDS = {"outputs", "activations", *DEFAULTS}
TENSORS = ("Tensor", "torch.Tensor")


class NeedsImport(Exception):
    """The ops of a file do not follow from its syntax tree alone."""


class Parameter(Protocol):
    """A tensor argument of an op."""

    @property
    def name(self) -> str: ...
    @property
    def optional(self) -> bool: ...


class OpSchema(Protocol):
    """The parts of an op that a task is checked against: an imported `Op` and a `ParsedOp` both have them."""

    @property
    def name(self) -> str: ...
    @property
    def outputs(self) -> tuple[str, ...]: ...
    @property
    def contract(self) -> str: ...
    @property
    def inplace(self) -> tuple[str, ...]: ...
    @property
    def tensor_parameters(self) -> Sequence[Parameter]: ...
    @property
    def scalar_defaults(self) -> Mapping[str, Any]: ...
    @property
    def digest(self) -> str: ...


@dataclass(frozen=True)
class ParsedParameter:
    """A tensor argument of an op, as its definition writes it."""

    name: str
    optional: bool


@dataclass(frozen=True)
class ParsedOp:
    """An op as its definition writes it. It has no function to call."""

    module: ParsedModule
    node: ast.FunctionDef

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(self._fields["outputs"])

    @property
    def contract(self) -> str:
        return str(self._fields["contract"])

    @property
    def inplace(self) -> tuple[str, ...]:
        return tuple(self._fields["inplace"])

    @cached_property
    def _fields(self) -> dict[str, Any]:
        """Return the op's fields, as `Op.model_dump` gives them."""
        (decorator,) = self.node.decorator_list
        if not isinstance(decorator, ast.Call) or decorator.args:
            raise NeedsImport(f"{self.name}: the arguments of define are not keywords")
        written = {str(keyword.arg): _literal(keyword.value) for keyword in decorator.keywords}
        if not {"outputs", "activations"} <= set(written) <= FIELDS:
            raise NeedsImport(f"{self.name}: define takes other arguments")
        fields = {"name": self.name, **DEFAULTS, **written}
        lists = {name: list(fields[name]) for name in ("outputs", "activations", "inplace")}
        return fields | lists | {"indices": dict(fields["indices"] or {})}

    @cached_property
    def tensor_parameters(self) -> tuple[ParsedParameter, ...]:
        if self.node.args.vararg or self.node.args.kwarg:
            raise NeedsImport(f"{self.name}: takes any number of arguments")
        return tuple(ParsedParameter(each.arg, _is_optional(each)) for each in self._tensor_arguments)

    @property
    def _tensor_arguments(self) -> list[ast.arg]:
        return [*self.node.args.posonlyargs, *self.node.args.args]

    @cached_property
    def scalar_defaults(self) -> dict[str, Any]:
        pairs = zip(self.node.args.kwonlyargs, self.node.args.kw_defaults, strict=True)
        return {argument.arg: _literal(default) for argument, default in pairs}

    @cached_property
    def digest(self) -> str:
        """Return the same digest as that of the imported op."""
        parts: dict[Any, str] = {}
        self.module.collect(self.node, parts)
        return digest_of({"functions": sorted(parts.values()), "facts": self._fields})

    @property
    def signature(self) -> str:
        """Return the op's name and arguments as Python code."""
        own = self.node.args
        defaults = [*[None] * (len(self._tensor_arguments) - len(own.defaults)), *own.defaults]
        tensors = [*map(_written, self._tensor_arguments, defaults)]
        scalars = [*map(_written, own.kwonlyargs, own.kw_defaults)]
        returned = f" -> {ast.unparse(self.node.returns)}" if self.node.returns else ""
        return f"{self.name}({', '.join([*tensors, *(['*'] if scalars else []), *scalars])}){returned}"

    @property
    def doc(self) -> str:
        return ast.get_docstring(self.node) or ""

    def problems(self) -> Iterator[BadFile]:
        """Yield everything that is wrong with the op's signature and fields, with file and line."""
        where = f"{self.module.path}:{self.node.lineno}"
        scalars = zip(self.node.args.kwonlyargs, self.node.args.kw_defaults, strict=True)
        missing = [argument.arg for argument, default in scalars if default is None]
        if missing:
            yield BadFile(where, self.name, f"scalars {missing} have no default", f"write {missing[0]}: float = 1.0")
        bare = [each.arg for each in self._tensor_arguments if each.annotation is None]
        if bare:
            remedy = f"write {bare[0]}: Tensor, or Tensor | None = None; scalars follow after a *"
            yield BadFile(where, self.name, f"parameters {bare} have no annotation", remedy)
        if bare or missing:
            return
        known = {parameter.name for parameter in self.tensor_parameters}
        indices = self._fields["indices"]
        for field, names in (
            ("activations", self._fields["activations"]),
            ("inplace", self.inplace),
            ("indices", (*indices, *indices.values())),
        ):
            if strangers := sorted(set(names) - known):
                remedy = did_you_mean(strangers[0], known, f"it takes {', '.join(sorted(known))}")
                yield BadFile(where, f"{self.name}: {field}", f"names {strangers}, which it does not take", remedy)
        if not self._fields["activations"]:
            yield BadFile(where, f"{self.name}: activations", "is empty", "name the tensors that carry data")
        if not self.outputs and not self.inplace:
            yield BadFile(
                where, self.name, "neither returns nor changes anything", "name its outputs or inplace tensors"
            )


@dataclass(frozen=True)
class ImportedName:
    """A name that `from module import name` or `import module` binds; `name` is empty for the module itself."""

    module: str
    name: str = ""

    @property
    def is_own(self) -> bool:
        return self.module.partition(".")[0] == PACKAGE

    @property
    def is_foreign_module(self) -> bool:
        """Return whether this is a module of a published package. Its file is looked up, so that nothing is
        imported."""
        dotted = f"{self.module}.{self.name}" if self.name else self.module
        top, _, rest = dotted.partition(".")
        if not is_foreign(dotted) or not rest:
            return is_foreign(dotted)
        spec = importlib.util.find_spec(top)
        places = [Path(folder, *rest.split(".")) for folder in (spec and spec.submodule_search_locations) or ()]
        return any(place.with_suffix(".py").is_file() or (place / "__init__.py").is_file() for place in places)


Binding = ast.FunctionDef | ast.ClassDef | ast.expr | ImportedName


class ParsedModule:
    """A Python file by its syntax tree, with the names that its top level binds."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.tree = ast.parse(text)

    @classmethod
    def read(cls, path: Path) -> ParsedModule:
        return _parsed(path.resolve(), path.read_text(encoding="utf-8"))

    @cached_property
    def bindings(self) -> dict[str, Binding]:
        """Return what each name is bound to. A name that is bound twice, or under a condition, is left out."""
        found: dict[str, list[Binding]] = {}
        for statement in self.tree.body:
            for name, binding in _bound(statement):
                found.setdefault(name, []).append(binding)
        return {name: bindings[0] for name, bindings in found.items() if len(bindings) == 1}

    def ops(self) -> dict[str, ParsedOp]:
        """Return the ops of the file, by name, its imported ones included.

        Raises:
            BadFile: with everything that is wrong with them.
            NeedsImport: if only an import shows what the ops are.
        """
        known = {name for statement in self.tree.body for name, _ in _bound(statement)}
        if known != set(self.bindings) or any(not _is_usual(statement) for statement in self.tree.body):
            raise NeedsImport(f"{self.path}: its names depend on running it")
        found, problems = {}, FileProblems()
        for name, written in self.bindings.items():
            module, binding = self, cast(Binding | None, written)
            if isinstance(binding, ImportedName) and binding.is_own and name != "define":
                module, binding = self._resolved(binding)
            if isinstance(binding, ast.FunctionDef) and any(map(is_define, binding.decorator_list)):
                op = found[binding.name] = ParsedOp(module, binding)
                wrong = list(op.problems())
                problems.add(wrong)
                if not wrong:
                    _ = op.scalar_defaults  # raises NeedsImport for a default that is not a literal
        problems.raise_any()
        return found

    def collect(self, node: ast.FunctionDef, parts: dict[Any, str]) -> None:
        """Add a function's code, and all that it refers to, as `function_digest` does for an imported function."""
        others = [own for own in node.decorator_list if not is_define(own)]
        inner = [own for own in ast.walk(node) if isinstance(own, ast.FunctionDef) and own is not node]
        if others or any(is_define(decorator) for own in inner for decorator in own.decorator_list):
            raise NeedsImport(f"{node.name} has decorators")
        bare = ast.FunctionDef(**{**dict(ast.iter_fields(node)), "decorator_list": []})
        parts[self.path, node.name] = dumped_code(ast.Module([bare], []))
        names = {inner.id for inner in ast.walk(bare) if isinstance(inner, ast.Name)}
        if names & IMPLICIT_NAMES:
            raise NeedsImport(f"{node.name} uses the module's own names")
        bound = {name for statement in self.tree.body for name, _ in _bound(statement)}
        for name in sorted(names & bound):
            text = self._described(name, parts)
            parts[name, text] = text

    def _described(self, name: str, parts: dict[Any, str]) -> str:
        """Return how a digest names the value of a global name. Add the code of a function of ours."""
        binding: Binding | None = self.bindings.get(name)
        module = self
        if isinstance(binding, ImportedName) and binding.is_own:
            module, binding = self._resolved(binding)
        if isinstance(binding, ast.FunctionDef):
            if (module.path, binding.name) not in parts:
                module.collect(binding, parts)
            return f"{name} is {binding.name}"
        if binding == ImportedName("torch", "Tensor"):
            return f"{name} is torch.Tensor"
        if isinstance(binding, ImportedName) and binding.is_foreign_module:
            return f"{name} is {binding.module}{'.' * bool(binding.name)}{binding.name}"
        if isinstance(binding, ast.expr) and is_plain(value := _literal(binding)):
            return f"{name} is {value!r}"
        raise NeedsImport(f"{name} in {self.path} has no value that its text gives")

    def _resolved(self, imported: ImportedName) -> tuple[ParsedModule, Binding | None]:
        """Return the module of ours that binds an imported name, and the binding."""
        place = ROOT.joinpath(*imported.module.split(".")[1:])
        path = next((path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file()), None)
        if path is None or not imported.name or (place / f"{imported.name}.py").is_file():
            return self, imported  # a module
        module = ParsedModule.read(path)
        binding = module.bindings.get(imported.name)
        if isinstance(binding, ImportedName) and binding.is_own:
            return module._resolved(binding)
        return module, binding


def _written(argument: ast.arg, default: ast.expr | None) -> str:
    annotation = f": {ast.unparse(argument.annotation)}" if argument.annotation else ""
    return f"{argument.arg}{annotation}" + (f" = {ast.unparse(default)}" if default else "")


@lru_cache(maxsize=256)
def _parsed(path: Path, text: str) -> ParsedModule:
    return ParsedModule(path, text)


def _bound(statement: ast.stmt) -> Iterator[tuple[str, Binding]]:
    """Yield the names that a statement at the top level of a file binds."""
    match statement:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            yield name, statement
        case ast.Import(names=names):
            for alias in names:
                module = alias.name if alias.asname else alias.name.partition(".")[0]
                yield alias.asname or module, ImportedName(module)
        case ast.ImportFrom(module=str(module), names=names, level=0):
            for alias in names:
                yield alias.asname or alias.name, ImportedName(module, alias.name)
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            yield name, value
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
            yield name, value


def _is_usual(statement: ast.stmt) -> bool:
    """Return whether the names of a statement, and whether they are ops, follow from its text."""
    match statement:
        case ast.Expr(value=ast.Constant()) | ast.ClassDef():
            return True
        case ast.FunctionDef(decorator_list=decorators):
            return not decorators or (len(decorators) == 1 and is_define(decorators[0]))
        case ast.Import(names=names):
            return all(_is_known(alias.name) for alias in names)
        case ast.ImportFrom(module=str(module), names=names, level=0):
            return _is_known(module) and all(alias.name != "*" for alias in names)
        case (
            ast.Assign(targets=[ast.Name()], value=value) | ast.AnnAssign(target=ast.Name(), value=ast.expr() as value)
        ):
            try:
                _literal(value)
            except NeedsImport:
                return False
            return True
        case _:
            return False


def _is_known(module: str) -> bool:
    """Return whether a module is ours, Python's or of a published package whose functions are no ops."""
    return module.partition(".")[0] in {PACKAGE, "torch", "numpy", *sys.stdlib_module_names}


def _literal(value: ast.expr | None) -> Any:
    try:
        return ast.literal_eval(cast(ast.expr, value))
    except (ValueError, TypeError, SyntaxError):
        raise NeedsImport("a value is not a literal") from None


def _is_optional(argument: ast.arg) -> bool:
    """Return whether an argument may be None. Raises NeedsImport unless it is annotated as a tensor."""
    annotation = ast.unparse(argument.annotation) if argument.annotation else ""
    if annotation in TENSORS:
        return False
    if annotation in {text for tensor in TENSORS for text in (f"{tensor} | None", f"None | {tensor}")}:
        return True
    raise NeedsImport(f"{argument.arg} is not annotated as a tensor")


@cache
def parsed_shipped_ops() -> dict[str, ParsedOp]:
    """Return every op that ships, by name, without importing any. Raises NeedsImport where one cannot be parsed."""
    found: dict[str, ParsedOp] = {}
    for pattern in ("*/definition.py", "*/*_definition.py"):
        for path in sorted((ROOT / "ops").glob(pattern)):
            found |= ParsedModule.read(path).ops()
    return found
