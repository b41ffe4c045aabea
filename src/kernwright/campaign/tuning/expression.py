"""Expression: a formula over parameters, such as `VECTORS * THREADS <= 2048`. It is evaluated, never executed."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

Value = int | float | str | bool
MOST_LENGTH = 500
_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip
_COMPARED: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}  # fmt: skip
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {ast.USub: operator.neg, ast.Not: operator.not_}
_FUNCTIONS: dict[str, Callable[..., Any]] = {"min": min, "max": max, "abs": abs}


@dataclass(frozen=True)
class Expression:
    """Numbers, names, texts, arithmetic, comparisons, `and`, `or`, `not`, min, max and abs."""

    text: str

    @cached_property
    def _tree(self) -> ast.expr:
        if len(self.text) > MOST_LENGTH:
            raise ValueError(f"has over {MOST_LENGTH} characters")
        try:
            return ast.parse(self.text, mode="eval").body
        except SyntaxError as error:
            raise ValueError(f"{self.text!r} is not a formula: {error.msg}") from None

    def names(self) -> set[str]:
        """Return the parameters that it refers to. Raise ValueError if it is not a formula."""
        used = {node.id for node in ast.walk(self._tree) if isinstance(node, ast.Name)}
        return used - set(_FUNCTIONS)

    def value(self, values: Mapping[str, Value]) -> Any:
        """Return its value. Raise ValueError if it cannot be computed."""
        try:
            return self._of(self._tree, values)
        except (TypeError, ArithmeticError, KeyError) as error:
            raise ValueError(f"{self.text!r} cannot be computed: {error}") from None

    def number(self, values: Mapping[str, Value]) -> int:
        """Return its value without a fraction. Raise ValueError if it is no number."""
        found = self.value(values)
        if isinstance(found, str) or not math.isfinite(found):
            raise ValueError(f"{self.text!r} is {found!r}, and not a number")
        return int(found)

    def _of(self, node: ast.expr, values: Mapping[str, Value]) -> Any:
        match node:
            case ast.Constant(value=int() | float() | str() as value):
                return value
            case ast.Name(id=name):
                return values[name]
            case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
                return _UNARY[type(op)](self._of(operand, values))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                return _BINARY[type(op)](self._of(left, values), self._of(right, values))
            case ast.BoolOp(op=ast.And(), values=parts):
                return all(self._of(part, values) for part in parts)
            case ast.BoolOp(op=ast.Or(), values=parts):
                return any(self._of(part, values) for part in parts)
            case ast.Compare(left=left, ops=ops, comparators=rights) if all(type(op) in _COMPARED for op in ops):
                sides = [self._of(each, values) for each in (left, *rights)]
                return all(_COMPARED[type(op)](a, b) for op, a, b in zip(ops, sides, sides[1:], strict=False))
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
                return _FUNCTIONS[name](*(self._of(each, values) for each in arguments))
        raise ValueError(f"{ast.unparse(node)!r} is not allowed in a formula")
