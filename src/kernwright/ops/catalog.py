"""Finding an op's dispatcher and its public call by name, importing no more than its family."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from functools import cache
from typing import Any

from kernwright.core.errors import KernwrightError
from kernwright.core.registry import ops_of_family
from kernwright.ops import FAMILIES
from kernwright.runtime.dispatch import Dispatcher, Explanation


@cache
def dispatcher(name: str) -> Dispatcher:
    """An op whose family has implementations brings its own; every other op runs its reference."""
    if name not in FAMILIES:
        raise KernwrightError(f"there is no op {name!r}", f"the ops are: {', '.join(sorted(FAMILIES))}")
    family = f"kernwright.ops.{FAMILIES[name]}"
    if importlib.util.find_spec(f"{family}.implementations"):
        own: dict[str, Dispatcher] = importlib.import_module(f"{family}.implementations").DISPATCHERS
        if name in own:
            return own[name]
    return Dispatcher(ops_of_family(FAMILIES[name])[name])


def public_call(name: str) -> Callable[..., Any]:
    """What `kernwright.ops.<name>` is: the family's own function, the shortest way to a kernel, where it has one."""
    family = f"kernwright.ops.{FAMILIES[name]}"
    if importlib.util.find_spec(f"{family}.calls"):
        own = getattr(importlib.import_module(f"{family}.calls"), name, None)
        if own is not None:
            return own  # type: ignore[no-any-return]
    return dispatcher(name)


def explain(op: str | Callable[..., Any], *arguments: Any, **named: Any) -> Explanation:
    """What would run for this call, and what every implementation says to it.

    The op by name, or as the function in `kernwright.ops`; then all that the call takes, backend and out as well.
    An argument that is wrong raises what the call would raise.
    """
    name = op if isinstance(op, str) else op.op.name if isinstance(op, Dispatcher) else getattr(op, "__name__", str(op))
    return dispatcher(name).explain(*arguments, **named)
