"""Vocabulary: the words of the field. Names of bottlenecks, groups of ops, and words with the same meaning."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

from kernwright.core.errors import KernwrightError, did_you_mean

ALL_ARCHITECTURES, CPU = "all", "cpu"
LANGUAGES = ("cuda", "triton", "cutedsl", "cpp", "python")
ANY_OP = "any"
_WORD = re.compile(r"[a-z0-9]+(?:[_-][a-z0-9]+)*")
_ENDINGS = (("ies", "y"), ("sses", "ss"), ("ings", ""), ("ing", ""), ("edly", ""), ("ed", ""), ("es", "e"), ("s", ""))


@cache
def bottlenecks() -> tuple[str, ...]:
    """Return the bounds that `kernwright ncu` reports."""
    return tuple(_data()["bottlenecks"])


def bottleneck_named(word: str) -> str:
    """Return the bound that a word means, such as `issue` for `issue-bound`.

    Raises:
        KernwrightError: no bound has this name.
    """
    plain = word.strip().casefold().replace(" ", "-").replace("_", "-")
    for name, others in _data()["bottlenecks"].items():
        own = name.casefold().replace(" ", "-")
        if plain in (own, f"{own}-bound", *others):
            return str(name)
    known = ", ".join(bottlenecks())
    raise KernwrightError(
        f"no bottleneck is named {word!r}", did_you_mean(word, bottlenecks(), f"kernwright ncu reports: {known}")
    )


@cache
def op_groups() -> dict[str, frozenset[str]]:
    """Return the groups of ops, each with its ops."""
    return {name: frozenset(ops) for name, ops in _data()["ops"].items()}


def groups_of(op: str) -> frozenset[str]:
    """Return the words that pages may use for an op: its own name and its groups.

    `op` is the name of an op or of a group. The parts of an unknown name count as groups, so that an op of a user's own
    task such as `my_norm` gets the pages on norms.
    """
    groups = op_groups()
    if op in groups:
        return frozenset({op})
    found = {name for name, ops in groups.items() if op in ops}
    parts = set(op.strip("_").split("_"))
    return frozenset({op, *(found or {name for name in groups if name in parts})})


@cache
def stem(word: str) -> str:
    """Return a word without its English ending, so that `loads` and `loading` are one word."""
    for ending, instead in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word[: len(word) - len(ending)] + instead
            break
    return word[:-1] if word.endswith("e") and len(word) > 4 else word


def terms(text: str) -> list[str]:
    """Return the terms of a text for the search: stems. Words with the same meaning become the same term."""
    found: list[str] = []
    for word in _WORD.findall(text.casefold()):
        parts = re.split("[_-]", word)
        for each in dict.fromkeys([word, *parts] if len(parts) > 1 else parts):
            if each not in _stops():
                found.append(_meanings().get(each) or _meanings().get(stem(each)) or stem(each))
    return found


@cache
def _meanings() -> dict[str, str]:
    groups = _data()["synonyms"]["groups"]
    return {form: stem(group[0]) for group in groups for word in group for form in (word, stem(word))}


@cache
def _stops() -> frozenset[str]:
    return frozenset(_data()["synonyms"]["stop"])


@cache
def _data() -> dict[str, Any]:
    return tomllib.loads(files("kernwright.wiki").joinpath("vocabulary.toml").read_text(encoding="utf-8"))
