"""Find an op's dispatcher and its public function by name. Only the op's family is imported."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from functools import cache
from typing import Any

from kernwright.core.errors import KernwrightError
from kernwright.core.registry import ops_of_family
from kernwright.ops import FAMILIES
from kernwright.runtime.choice.explanation import Explanation
from kernwright.runtime.dispatch import Dispatcher
from kernwright.runtime.fused_op import FusedOp
from kernwright.runtime.public_call.public_function import public_function


def fused_ops(family: str) -> dict[str, FusedOp]:
    """Return the ops of a family with their checks and implementations. A family without `family.py` has none."""
    name = f"kernwright.ops.{family}.family"
    if importlib.util.find_spec(name) is None:
        return {}
    own: dict[str, FusedOp] = importlib.import_module(name).OPS
    return own


@cache
def dispatcher(name: str) -> Dispatcher:
    """Return the dispatcher of an op. An op without kernels runs its reference."""
    if name not in FAMILIES:
        raise KernwrightError(f"there is no op {name!r}", f"the ops are: {', '.join(sorted(FAMILIES))}")
    fused = fused_ops(FAMILIES[name]).get(name)
    return fused.dispatcher if fused is not None else Dispatcher(ops_of_family(FAMILIES[name])[name])


@cache
def public_call(name: str) -> Callable[..., Any]:
    """Return the public function of an op, `kernwright.ops.<name>`."""
    fused = fused_ops(FAMILIES[name]).get(name)
    if fused is not None:
        return fused.function
    own = dispatcher(name)
    return public_function(own.op, own.run_positional)


def explain(op: str | Callable[..., Any], *arguments: Any, **named: Any) -> Explanation:
    """Return the implementation that a call would run, and the answer of every implementation of the op.

        print(kernwright.explain(ops.norm_scale_shift, x, scale, shift))

    Nothing is built or launched.

    Arguments:
        op: a function of `kernwright.ops`, or its name.
        *arguments, **named: the arguments of the call, `backend`, `contract` and `out` included.

    Raises:
        BadArgument: an argument is wrong, as in the call itself.
        KernwrightError: there is no op, backend or contract of that name.
    """
    name = op if isinstance(op, str) else op.op.name if isinstance(op, Dispatcher) else getattr(op, "__name__", str(op))
    return dispatcher(name).explain(*arguments, **named)
