"""Variants: the rows of a family, grouped by memory traffic, because a mean over different traffic means little.

Calls of one op may differ: a shift may be one row for all tokens, or have a value for every element.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from kernwright.tasks.workload import Workload


def variants_of(rows: Iterable[Workload]) -> dict[str, list[Workload]]:
    """Return rows by op and, where calls of one op differ, by the inputs with a value per element and their dtypes."""
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
    """Return the inputs that have every axis, in contrast to weights and broadcast inputs.

    Axes are compared and not sizes: with a single token a weight is as large as x.
    """
    every = set().union(*(tensor.axes for tensor in row.inputs.values()))
    return [f"{name} {tensor.dtype}" for name, tensor in row.inputs.items() if tensor.axes == every]
