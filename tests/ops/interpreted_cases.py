"""A family's cases in Triton's interpreter. All cases run in a separate process, which prints every outcome as JSON."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from interpreter_server import run_interpreted


def patch_once() -> None:
    """Patch Triton's language once. Every launch, and every call of a jitted function within it, would patch it again,
    which takes half of the time. Once is enough for Triton's own library functions, which use the language from another
    module."""
    import triton.language as tl
    from triton.runtime import interpreter

    patched = False

    def call(own: Any, *arguments: Any, **named: Any) -> Any:
        nonlocal patched
        if not patched and tl not in own.fn.__globals__.values():
            interpreter._patch_lang(own.fn)
            patched = True
        return own.rewrite()(*arguments, **named)

    interpreter.InterpretedFunction.__call__ = call


def outcome(cases: Any, name: str, run: Callable[..., Any]) -> str | None:
    try:
        cases.verify(cases.CASES[name] if isinstance(cases.CASES, dict) else name, run)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def interpreted(family: str, names: Sequence[str], module: str = "") -> dict[str, str | None]:
    """Return the outcome of each case, None if it passed. `module` has the cases if it is not FAMILY_cases."""
    return _answer(f"{family}:{module or f'{family}_cases'}", *names)  # type: ignore[no-any-return]


def interpreted_families(families: Sequence[str]) -> dict[str, dict[str, str | None]]:
    """Return the outcomes of all cases of several families."""
    return _answer("--families", *families)  # type: ignore[no-any-return]


def _answer(*arguments: str) -> Any:
    said = run_interpreted("import sys, interpreted_cases; interpreted_cases.main(*sys.argv[1:])", *arguments)
    return json.loads(said.splitlines()[-1])


def outcomes(family: str, module: str, names: Sequence[str]) -> dict[str, str | None]:
    cases = importlib.import_module(module)
    kernels = importlib.import_module(f"kernwright.ops.{family}.triton")

    def op(name: str) -> str:
        return cases.CASES[name].op if isinstance(cases.CASES, dict) else cases.OP.name  # type: ignore[no-any-return]

    return {name: outcome(cases, name, getattr(kernels, op(name))) for name in names}


def public_outcomes(family: str) -> dict[str, str | None]:
    """Return the outcomes of all cases, through the public calls."""
    from kernwright import ops
    from kernwright.ops._shared import token_requirements

    token_requirements.rounds_to_nearest = lambda call: None  # holds for the interpreter, as patched here
    cases = importlib.import_module(f"{family}_cases")
    calls = {name: partial(getattr(ops, case.op), backend="triton") for name, case in cases.CASES.items()}
    return {name: outcome(cases, name, call) for name, call in calls.items()}


def main(first: str, *others: str) -> None:
    from kernwright.judge.worker.triton_interpreter import compute_bfloat16_like_gpu

    patch_once()
    compute_bfloat16_like_gpu()
    family, _, module = first.partition(":")
    if first == "--families":
        print(json.dumps({family: public_outcomes(family) for family in others}))
    else:
        print(json.dumps(outcomes(family, module, others)))
