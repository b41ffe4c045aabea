"""Reference: the definition of an op with everything that it calls, as one Python file that needs only torch."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path

from kernwright.core.digest import PACKAGE
from kernwright.core.errors import KernwrightError
from kernwright.core.parsed_op import ROOT, ImportedName, NeedsImport, ParsedModule, ParsedOp
from kernwright.tasks.task import Task

FILE = "reference.py"


def reference_file(task: Task, op: str) -> str:
    """Return the content of reference.py in the agent's folder."""
    schema = task.schemas[op]
    head = (
        f'"""Reference of {op}: the eager chain, with the contract {schema.contract!r}. Not part of the candidate."""'
    )
    try:
        return f"{head}\n\n{reference_text(task, op, op)}"
    except KernwrightError:  # the file decides by running it what the op is
        definitions = task.file.definitions
        text = (task.folder / definitions).read_text(encoding="utf-8") if definitions else ""
        return f"{head}\n\n{text}"


def reference_text(task: Task, op: str, name: str) -> str:
    """Return Python source that defines the reference of an op as a function of the given name.

    Raises:
        KernwrightError: the definition refers to something that cannot be copied.
    """
    schema = task.schemas[op]
    try:
        if not isinstance(schema, ParsedOp):
            raise NeedsImport("its file must be run to know the op")
        copied = _Copy()
        copied.function(schema.module, schema.node, name)
    except NeedsImport as why:
        raise KernwrightError(
            f"the reference of {op} cannot be copied: {why}", "give a candidate that works with --from DIR"
        ) from None
    return copied.text()


class _Copy:
    """The parts of a file, each after those that it needs."""

    def __init__(self) -> None:
        self.imports: set[str] = set()
        self.parts: list[str] = []
        self.names: dict[str, tuple[Path, str]] = {}

    def text(self) -> str:
        return "\n".join(["from __future__ import annotations", "", *_sorted(self.imports), "", "", *self.parts])

    def function(self, module: ParsedModule, node: ast.FunctionDef, name: str) -> None:
        if self._is_known(name, module, node.name):
            return
        bare = ast.FunctionDef(**{**dict(ast.iter_fields(node)), "decorator_list": []})
        arguments = {argument.arg for argument in ast.walk(bare) if isinstance(argument, ast.arg)}
        used = {each.id for each in ast.walk(bare) if isinstance(each, ast.Name)} - arguments
        for each in sorted(used & set(module.bindings)):
            self._name(module, each)
        text = ast.get_source_segment(module.path.read_text(encoding="utf-8"), node) or ast.unparse(node)
        self.parts += [text.replace(f"def {node.name}(", f"def {name}(", 1), "", ""]

    def _name(self, module: ParsedModule, name: str) -> None:
        binding = module.bindings[name]
        if isinstance(binding, ImportedName) and not binding.is_own:
            line = f"from {binding.module} import {binding.name}" if binding.name else f"import {binding.module}"
            own = binding.name or binding.module.partition(".")[0]
            if not self._is_known(name, Path(binding.module), binding.name):
                self.imports.add(line if own == name else f"{line} as {name}")
        elif isinstance(binding, ImportedName):
            source = _module_of(binding)
            if binding.name not in source.bindings:
                raise NeedsImport(f"{name} is not defined in {source.path}")
            inner = source.bindings[binding.name]
            if isinstance(inner, ast.FunctionDef):
                self.function(source, inner, name)
            else:
                self._name(source, binding.name)
        elif isinstance(binding, ast.FunctionDef):
            self.function(module, binding, name)
        elif isinstance(binding, ast.expr):
            if not self._is_known(name, module, name):
                self.parts += [f"{name} = {ast.unparse(binding)}", ""]
        else:
            raise NeedsImport(f"{name} is a class")

    def _is_known(self, name: str, module: ParsedModule | Path, original: str) -> bool:
        """Return whether a name was copied already. Raises NeedsImport if two modules give it different meanings."""
        origin = (module.path if isinstance(module, ParsedModule) else module, original)
        is_known = name in self.names
        if self.names.setdefault(name, origin) != origin:
            raise NeedsImport(f"two modules define {name}")
        return is_known


def _module_of(imported: ImportedName) -> ParsedModule:
    place = ROOT.joinpath(*imported.module.split(".")[1:])
    path = next((path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file()), None)
    if path is None or imported.module.partition(".")[0] != PACKAGE:
        raise NeedsImport(f"{imported.module} is not a file of {PACKAGE}")
    return ParsedModule.read(path)


def _sorted(imports: Iterable[str]) -> list[str]:
    return sorted(imports, key=lambda line: (line.startswith("from"), line))
