"""Binding: a function with the parameters of the original that calls a candidate.

It is generated as source, so that Python itself binds the arguments: a call costs no more than one more Python call.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kernwright.core.errors import KernwrightError

KEEPS = "_kernwright"  # prefix of the names in the generated function; no parameter may start with it
PLAIN = (bool, int, float, str)


class NotCovered(Exception):
    """A call that the candidate does not cover."""


def bind(
    original: Callable[..., Any],
    candidate: Callable[..., Any],
    *,
    tensors: Mapping[str, bool],
    scalars: Mapping[str, Any],
    arguments: str | None,
) -> tuple[Callable[..., Any], str]:
    """Return the bound function, and as text the candidate's arguments and the scalars left at their defaults.

    Args:
        candidate: takes the op's arguments by name.
        tensors: the op's tensors in order, each with whether it may be left out.
        scalars: the op's scalars with their defaults.
        arguments: the arguments of the candidate in terms of the original's parameters. None binds by name: each
            parameter of the op to that of the original, or to an attribute of its `self`.
    """
    parameters = _parameters_of(original)
    if arguments is None:
        taken = _by_name(parameters, tensors, scalars)
        guards = _unused(parameters, taken)
        arguments = ", ".join(f"{name}={value}" for name, value in taken.items())
        left = ", ".join(f"{name}={default!r}" for name, default in scalars.items() if name not in taken)
    else:
        guards, left = [], ""
    readable = _readable(arguments) + (f"; left at the op's defaults: {left}" if left else "")
    return _generated(parameters, candidate, arguments, guards), readable


def _parameters_of(original: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(original).parameters.values())
    except (TypeError, ValueError):
        raise KernwrightError(
            "the parameters of the original are unknown, because it is a built-in function",
            "write an adapter: FILE.py:FUNCTION",
        ) from None


def _by_name(
    parameters: Sequence[inspect.Parameter], tensors: Mapping[str, bool], scalars: Mapping[str, Any]
) -> dict[str, str]:
    """Return an expression for each parameter of the op that the original can supply."""
    named = {each.name for each in parameters if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)}
    owner = "self" if parameters and parameters[0].name == "self" else None
    taken = {}
    missing = []
    for name in (*tensors, *scalars):
        if name in named:
            taken[name] = name
        elif owner and (tensors.get(name) or name in scalars):
            default = "None" if name in tensors else repr(scalars[name])
            taken[name] = f"{KEEPS}_own(self, {name!r}, {default})"
        elif name in tensors and not tensors[name]:
            missing.append(name)
    if missing:
        has = ", ".join(each.name for each in parameters)
        example = ", ".join(f"{name}=..." for name in tensors if not tensors[name])
        raise KernwrightError(
            f"the function has no parameter {' or '.join(missing)}; its parameters are {has}",
            f"write the arguments after the candidate, as in ({example}), or an adapter: FILE.py:FUNCTION",
        )
    return taken


def _unused(parameters: Sequence[inspect.Parameter], taken: Mapping[str, str]) -> list[inspect.Parameter]:
    """Return the parameters that the op does not have: a call is covered if they have their defaults."""
    unused = [each for each in parameters if each.name not in taken.values() and each.name != "self"]
    required = [
        each.name for each in unused if each.default is each.empty and each.kind is not each.VAR_POSITIONAL
        and each.kind is not each.VAR_KEYWORD
    ]  # fmt: skip
    if required:
        raise KernwrightError(
            f"the op has no parameter {' or '.join(required)}, which the function requires",
            "write the arguments after the candidate, as in (x=hidden_states), or an adapter: FILE.py:FUNCTION",
        )
    return unused


def _generated(
    parameters: Sequence[inspect.Parameter],
    candidate: Callable[..., Any],
    arguments: str,
    guards: Sequence[inspect.Parameter],
) -> Callable[..., Any]:
    import torch

    space: dict[str, Any] = {
        "torch": torch,
        f"{KEEPS}_call": candidate,
        f"{KEEPS}_own": _own,
        f"{KEEPS}_same": _same,
        f"{KEEPS}_refuse": _refuse,
    }
    lines = [f"def bound({_header(parameters, space)}):"]
    for each in guards:
        space[f"{KEEPS}_default_{each.name}"] = _empty(each)
        lines.append(
            f"    if not {KEEPS}_same({each.name}, {KEEPS}_default_{each.name}): {KEEPS}_refuse({each.name!r})"
        )
    lines.append(f"    return {KEEPS}_call({arguments})")
    try:
        exec(compile("\n".join(lines), "<swap>", "exec"), space)
    except SyntaxError as error:
        raise KernwrightError(
            f"({arguments}) is not a list of arguments: {error.msg}",
            "write name=expression, with the original's parameters",
        ) from None
    return space["bound"]  # type: ignore[no-any-return]


def _empty(parameter: inspect.Parameter) -> Any:
    if parameter.kind is parameter.VAR_POSITIONAL:
        return ()
    return {} if parameter.kind is parameter.VAR_KEYWORD else parameter.default


def _header(parameters: Sequence[inspect.Parameter], space: dict[str, Any]) -> str:
    """Return the parameters as source. Defaults are put into the namespace."""
    words: list[str] = []
    before: Any = None
    for each in parameters:
        if before is each.POSITIONAL_ONLY and each.kind is not each.POSITIONAL_ONLY:
            words.append("/")
        if each.kind is each.KEYWORD_ONLY and before not in (each.KEYWORD_ONLY, each.VAR_POSITIONAL):
            words.append("*")
        stars = "*" if each.kind is each.VAR_POSITIONAL else "**" if each.kind is each.VAR_KEYWORD else ""
        default = ""
        if each.default is not each.empty:
            space[f"{KEEPS}_given_{each.name}"] = each.default
            default = f"={KEEPS}_given_{each.name}"
        words.append(f"{stars}{each.name}{default}")
        before = each.kind
    if before is inspect.Parameter.POSITIONAL_ONLY:
        words.append("/")
    return ", ".join(words)


def _own(owner: Any, name: str, default: Any) -> Any:
    """Return an attribute of the original's `self`: `weight`, `bias`, `eps`."""
    return getattr(owner, name, default)


def _same(value: Any, default: Any) -> bool:
    if value is default:
        return True
    if isinstance(default, (tuple, dict)):
        return type(value) is type(default) and not default and not value
    return type(value) in PLAIN and type(default) in PLAIN and value == default


def _refuse(name: str) -> None:
    raise NotCovered(f"the op has no argument {name}, which the call passes")


def _readable(arguments: str) -> str:
    """Return the arguments as a user would write them, with the defaults of attributes that `self` may lack."""
    import re

    return re.sub(rf"{KEEPS}_own\(self, '(\w+)', ([^()]*)\)", r"self.\1 (\2 if it has none)", arguments)
