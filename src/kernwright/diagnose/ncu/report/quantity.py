"""Quantities as Nsight Compute writes them: numbers with the separators of a locale, and units with prefixes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_NUMBER = re.compile(r"[+-]?\d[\d.,'’\u00a0\u202f\u2009 ]*(?:[eE][+-]?\d+)?")
_GROUPS = "'’\u00a0\u202f\u2009 "  # separators that are never decimal points
_TIMES = {
    "s": 1.0,
    "second": 1.0,
    "ms": 1e-3,
    "msecond": 1e-3,
    "us": 1e-6,
    "usecond": 1e-6,
    "ns": 1e-9,
    "nsecond": 1e-9,
}
_PREFIXES = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_PREFIXED = re.compile(r"(?P<prefix>[KMGTP]?)(?P<unit>byte|hz)s?", re.IGNORECASE)


class MixedSeparators(ValueError):
    """Numbers of one file disagree about which character is the decimal point."""


@dataclass(frozen=True)
class Notation:
    """The separators of a file's numbers. All numbers of a file follow one locale."""

    decimal: str = "."

    def number(self, text: str) -> float | None:
        """Return the value of a cell, or None if it holds no number ("n/a", "no data", "nan", a name)."""
        plain = text.strip()
        if not _NUMBER.fullmatch(plain):
            return None
        thousands = "," if self.decimal == "." else "."
        for character in (thousands, *_GROUPS):
            plain = plain.replace(character, "")
        try:
            return float(plain.replace(self.decimal, "."))
        except ValueError:
            return None


def notation_of(cells: Iterable[str]) -> Notation:
    """Return the notation that fits all numbers among the cells.

    If a number has two kinds of separators, the last one is the decimal point. A separator that is not followed by
    exactly three digits is the decimal point, too. A separator that occurs several times separates thousands. "1,234"
    alone is no evidence. Without evidence, the decimal point is a full stop.

    Raises:
        MixedSeparators: the numbers do not follow one locale.
    """
    found = {_decimal(text.strip()) for text in cells if _NUMBER.fullmatch(text.strip())} - {None}
    if len(found) > 1:
        raise MixedSeparators("some numbers have a decimal point and others a decimal comma")
    return Notation(found.pop() or ".") if found else Notation()


def _decimal(text: str) -> str | None:
    """Return the decimal separator that one number proves, if it proves one."""
    used = [character for character in text if character in ".,"]
    if not used:
        return None
    if len(set(used)) == 2:
        return used[-1]
    mark = used[0]
    if len(used) > 1:
        return "," if mark == "." else "."
    before, _, after = text.partition(mark)
    is_group = len(re.match(r"\d*", after).group()) == 3 and 1 <= len(before.lstrip("+-")) <= 3  # type: ignore[union-attr]
    return None if is_group and before.lstrip("+-") != "0" else mark


def to_base(value: float, unit: str) -> tuple[float, str]:
    """Return a value in base units: bytes, seconds, hertz, and quotients of these. Other units stay as they are."""
    factor, names = 1.0, []
    for place, part in enumerate(unit.split("/")):
        scale, name = _scale(part)
        factor = factor * scale if place == 0 else factor / scale
        names.append(name)
    base = "/".join(names)
    return (value * factor, "hz") if base == "cycle/s" else (value * factor, base)


def _scale(part: str) -> tuple[float, str]:
    if part in _TIMES:
        return _TIMES[part], "s"
    if match := _PREFIXED.fullmatch(part):
        return _PREFIXES[match["prefix"].upper()], match["unit"].lower()
    return 1.0, part


def in_words(value: float, unit: str) -> str:
    """Return a value in base units as a reader wants it: with a prefix and three or four digits."""
    if unit == "%":
        return f"{value:.1f} %"
    if unit == "s":
        return _prefixed(value, (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9)))
    if unit in ("byte/s", "byte", "hz"):
        name = {"byte/s": "B/s", "byte": "B", "hz": "Hz"}[unit]
        return _prefixed(value, tuple((f"{prefix}{name}", 10.0**power) for prefix, power in _POWERS))
    shown = f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.3g}"
    return f"{shown} {unit}".strip()


_POWERS = (("T", 12), ("G", 9), ("M", 6), ("k", 3), ("", 0))


def _prefixed(value: float, scales: Iterable[tuple[str, float]]) -> str:
    scales = list(scales)
    name, scale = next((pair for pair in scales if abs(value) >= pair[1]), scales[-1])
    scaled = value / scale
    return f"{scaled:.2f} {name}" if scaled < 100 else f"{scaled:.0f} {name}"
