"""The public function of an op, generated from the signature of its definition.

The function binds its arguments itself and passes them on by position. A call takes microseconds, so nothing else may
bind or inspect them: the source of the function is generated and compiled, as `dataclasses` does for `__init__`.
`__wrapped__` is the definition, so that `inspect.getsource` and the "go to definition" of a debugger show it.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kernwright.core.op import Op
from kernwright.core.registry import SHIPPED

# All arguments of the op by position, tensors and then scalars; then backend, contract and out.
Run = Callable[[tuple[Any, ...], Any, Any, Any], Any]
KEYWORDS = ("backend", "contract", "out")  # keywords of a public function beyond the arguments of its op
KEYWORDS_DOC = """
Keywords of every op:
    backend: "cuda", "cpu", "triton" or "torch", which is the reference. None follows `kernwright.preferring` and
        `kernwright.prefer`, and without a preference chooses the first of them that takes the call.
    contract: "exact" asks for the bits of the eager chain; "close" and None for at least its accuracy.
"""
OUT_DOC = "    out: {tensors} to write {names} to. {pronoun} must not overlap an input in part.\n"
RAISES_DOC = """
Raises:
    BadArgument: an argument has a wrong type, shape, dtype or device.
    CannotRun: the backend that was asked for does not take the call, or only the reference does and strict is set.
"""


@dataclass(frozen=True)
class Option:
    """A boolean keyword that only the public function has: it replaces one argument of the op.

    `value(first, own)` returns the replacement, given the first argument and the one that is replaced.
    """

    name: str
    replaces: str
    value: Callable[[Any, Any], Any]


def public_signature(op: Op, option: Option | None = None) -> inspect.Signature:
    """Return the definition's signature with the keywords of a public function."""
    own = inspect.signature(op.reference)
    extra: list[tuple[str, str, Any]] = [(option.name, "bool", False)] if option else []
    extra += [("backend", "Backend | None", None), ("contract", "Contract | None", None)]
    if op.outputs:
        extra.append(("out", "Tensor | None" if len(op.outputs) == 1 else "Sequence[Tensor] | None", None))
    keywords = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, annotation, default in extra
    ]
    return own.replace(parameters=[*own.parameters.values(), *keywords])


def public_function(op: Op, run: Run, option: Option | None = None) -> Callable[..., Any]:
    """Return a function with the name, signature and docstring of the op's definition, and the keywords above."""
    signature = public_signature(op, option)
    own = [parameter.name for parameter in op.tensor_parameters] + list(op.scalar_defaults)
    keywords = [name if name in signature.parameters else "None" for name in KEYWORDS]
    unannotated = signature.replace(
        parameters=[p.replace(annotation=p.empty) for p in signature.parameters.values()],
        return_annotation=inspect.Signature.empty,
    )
    replacing = f"        if {option.name}: {option.replaces} = value({own[0]}, {option.replaces})\n" if option else ""
    source = (
        f"def made(run, value):\n    def {op.name}{unannotated}:\n{replacing}"
        f"        return run(({', '.join(own)},), {', '.join(keywords)})\n    return {op.name}\n"
    )
    # Warnings point at the caller's line: frames of this module name are skipped, see `choice/fallback.py`.
    scope: dict[str, Any] = {"__name__": SHIPPED}
    exec(compile(source, f"<{SHIPPED}.{op.name}>", "exec"), scope)
    function: Any = scope["made"](run, option.value if option else None)
    function.__module__, function.__qualname__ = SHIPPED, op.name
    function.__doc__, function.__wrapped__ = public_doc(op), inspect.unwrap(op.reference)
    function.__signature__ = signature
    function.__annotations__ = {p.name: p.annotation for p in signature.parameters.values()}
    function.__annotations__["return"] = signature.return_annotation
    return function  # type: ignore[no-any-return]


def public_doc(op: Op) -> str:
    """Return the docstring of the definition, followed by the results, the keywords and the errors of every op."""
    results = ", ".join(op.outputs)
    text = f"{inspect.cleandoc(op.reference.__doc__ or op.name)}\n\n"
    text += f"Returns: {results or 'None'}"
    text += f". Changes {' and '.join(op.inplace)} in place.\n" if op.inplace else ".\n"
    text += KEYWORDS_DOC
    if op.outputs:
        is_one = len(op.outputs) == 1
        how = {"tensors": "a tensor" if is_one else "tensors", "pronoun": "It" if is_one else "They"}
        text += OUT_DOC.format(names=results, **how)
    return textwrap.indent(text + RAISES_DOC, "    ").strip() + "\n    "


def as_op_arguments(
    op: Op, option: Option | None, arguments: tuple[Any, ...], named: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of the op for those of its public function."""
    if option is None or option.name not in named:
        return arguments, named
    own = {name: value for name, value in named.items() if name != option.name}
    if not named[option.name]:
        return arguments, own
    bound = inspect.signature(op.reference).bind(*arguments, **own)
    bound.apply_defaults()
    given = bound.arguments
    given[option.replaces] = option.value(next(iter(given.values())), given[option.replaces])
    return (), dict(given)
