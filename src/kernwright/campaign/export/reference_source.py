"""The source of an op's definition as a module of its own, which needs nothing but torch."""

from __future__ import annotations

import ast
import inspect
import textwrap
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kernwright.core.digest import is_define, is_foreign, is_plain
from kernwright.core.errors import KernwrightError
from kernwright.core.op import Op


@dataclass
class ReferenceSource:
    """The parts of the module, collected from a definition and from the helpers that it calls."""

    imports: set[str] = field(default_factory=set)
    constants: dict[str, str] = field(default_factory=dict)
    functions: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, op: Op) -> ReferenceSource:
        """Return the parts. Raise KernwrightError if the definition refers to something that cannot be copied."""
        own = cls()
        own._add(op.reference)
        return own

    def text(self) -> str:
        """Return the functions with their imports; helpers come before their users."""
        constants = [f"{name} = {value}" for name, value in self.constants.items()]
        parts = ["\n".join(sorted(self.imports)), "\n".join(constants), *self.functions.values()]
        return "\n\n\n".join(part for part in parts if part)

    def _add(self, function: Callable[..., Any]) -> None:
        function = inspect.unwrap(function)
        name = function.__name__
        if name in self.functions:
            return
        self.functions[name] = ""  # a helper that calls itself is copied once
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
        (node,) = [own for own in tree.body if isinstance(own, ast.FunctionDef)]
        node.decorator_list = [own for own in node.decorator_list if not is_define(own)]
        scope = inspect.getclosurevars(function)
        names = {own.id for own in ast.walk(node) if isinstance(own, ast.Name)}
        for used, value in {**scope.globals, **scope.nonlocals, **_annotated(function, names)}.items():
            if used in names:
                self._refer(used, value, name)
        text = self.functions.pop(name)  # helpers were added meanwhile, and come first
        self.functions[name] = text or ast.unparse(node)

    def _refer(self, name: str, value: Any, user: str) -> None:
        value = getattr(value, "reference", value)  # another op, called as a function
        if isinstance(value, types.FunctionType) and not is_foreign(value.__module__):
            if value.__name__ != name:
                raise KernwrightError(
                    f"{user} calls {value.__name__} by another name, {name}", "call the helper by its own name"
                )
            self._add(value)
        elif isinstance(value, types.ModuleType):
            package, _, last = value.__name__.rpartition(".")
            plain = f"import {value.__name__}" if not package else f"from {package} import {last}"
            self.imports.add(plain if (last if package else value.__name__) == name else f"{plain} as {name}")
        elif is_plain(value):
            self.constants[name] = repr(value)
        elif hasattr(value, "__qualname__") and is_foreign(str(value.__module__)):
            module = "torch" if str(value.__module__).startswith("torch") else value.__module__
            self.imports.add(f"from {module} import {value.__qualname__}")
        else:
            raise KernwrightError(
                f"{user} refers to {name}, which cannot be copied: {type(value).__name__}",
                "write the definition with functions, modules and constants only",
            )


def _annotated(function: Callable[..., Any], names: set[str]) -> dict[str, Any]:
    """Return the names of annotations, which are no variables of the function."""
    scope = function.__globals__
    return {name: scope[name] for name in names if name in scope}
