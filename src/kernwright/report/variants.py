"""Variants: a family's rows, those apart whose traffic differs. A mean over both would be of neither.

Two calls of one op may differ in it: a shift can be one row for all tokens, or have a value for every element.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from kernwright.tasks.workload import Workload


def variants_of(rows: Iterable[Workload]) -> dict[str, list[Workload]]:
    """By op; and, where calls of one op differ in them, by whole inputs and their dtypes. An only one has no name."""
    found: dict[tuple[str, frozenset[str]], list[Workload]] = {}
    for row in rows:
        found.setdefault((row.op, frozenset(_whole(row))), []).append(row)
    kinds = Counter(op for op, _ in found)
    if len(found) == 1:
        return {"": next(iter(found.values()))}
    return {
        op if kinds[op] == 1 or not whole else f"{op} of {', '.join(_whole(own[0]))}": own
        for (op, whole), own in found.items()
    }


def _whole(row: Workload) -> list[str]:
    """Inputs that grow along every axis that any of them has, unlike a weight or what is broadcast. Axes and not
    sizes: of a single token a weight is as large as x is."""
    every = set().union(*(tensor.axes for tensor in row.inputs.values()))
    return [f"{name} {tensor.dtype}" for name, tensor in row.inputs.items() if tensor.axes == every]
