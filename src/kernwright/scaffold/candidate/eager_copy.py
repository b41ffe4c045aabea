"""EagerCopy: the definition of an op as a file of its own, with all helpers that it calls. It is correct for any op."""

from __future__ import annotations

import ast
import inspect
import textwrap
from types import FunctionType, ModuleType
from typing import Any

OURS = "kernwright."


def eager_copy(op: Any) -> str:
    """Return Python source with the definition of an op and its helpers, without imports of Kernwright."""
    functions: dict[str, str] = {}
    imports: set[str] = set()
    constants: dict[str, str] = {}

    def visit(function: FunctionType) -> None:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
        node = tree.body[0]
        assert isinstance(node, ast.FunctionDef)
        node.decorator_list = []
        functions[function.__name__] = ""  # a helper may call itself
        for name in sorted({each.id for each in ast.walk(node) if isinstance(each, ast.Name)}):
            found = function.__globals__.get(name)
            if isinstance(found, FunctionType) and _is_own(found, function):
                if found.__name__ not in functions:
                    visit(found)
            elif isinstance(found, ModuleType):
                imports.add(f"import {found.__name__} as {name}" if found.__name__ != name else f"import {name}")
            elif isinstance(found, type | FunctionType) or callable(found):
                imports.add(f"from {found.__module__} import {found.__name__}")
            elif found is not None:
                constants[name] = repr(found)
        functions[function.__name__] = functions.pop(function.__name__) or ast.unparse(node)

    visit(op.reference)
    parts = ["from __future__ import annotations\n", "\n".join(sorted(imports))]
    parts += [f"{name} = {value}" for name, value in constants.items()]
    return "\n\n\n".join([*parts, *functions.values()]) + "\n"


def _is_own(found: FunctionType, user: FunctionType) -> bool:
    return found.__module__.startswith(OURS) or found.__globals__ is user.__globals__
