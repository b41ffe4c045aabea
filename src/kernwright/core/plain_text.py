"""Plain text: how text from outside is shown, and how names are compared.

Names of candidates and tasks, reasons of a worker and records of other machines are foreign text. It must not move a
cursor, reorder a line or hide characters, and a name must not pass for another one.
"""

from __future__ import annotations

import math
import unicodedata
from itertools import chain

# These characters count as printable but occupy no visible space: joiners, fillers, variation selectors, blank Braille.
_INVISIBLE = frozenset(
    map(
        chr,
        chain(
            (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0),
            range(0x180B, 0x1810),
            range(0xFE00, 0xFE10),
            range(0xE0100, 0xE01F0),
        ),
    )
)
# Letters that look like a Latin one, after case folding: Cyrillic, Greek, Armenian, small capitals, digits.
_LOOK_ALIKES = {
    "e": "\u0435\u04bd\u1d07", "g": "\u0261\u0262\u0581", "h": "\u029c\u04bb\u0570",
    "i": "\u0131\u0269\u026a\u03b9\u04561l|", "k": "\u03ba\u043a\u1d0b", "n": "\u0274\u03b7\u043f\u0578\u057c",
    "r": "\u0280\u0433\u1d26", "t": "\u03c4\u0442\u1d1b", "w": "\u03c9\u0461\u051d\u0561\u1d21",
}  # fmt: skip
_LATIN = str.maketrans({char: latin for latin, chars in _LOOK_ALIKES.items() for char in chars})


def plain(text: object, newlines: bool = False) -> str:
    """Return text for a terminal or a page: characters that do not show as themselves become escapes like ``\\u202e``.

    Args:
        newlines: keep line breaks and tabs; otherwise the result is one line.
    """
    text = str(text)
    if text.isascii() and text.isprintable():  # nearly all text, and tables have thousands of cells
        return text
    kept = "\n\t" if newlines else ""
    return "".join(char if _shows(char) or char in kept else _escape(char) for char in text)


def _shows(char: str) -> bool:
    """Return whether a character shows as itself. `str.isprintable` excludes controls, bidi marks and surrogates."""
    return char.isprintable() and char not in _INVISIBLE


def _escape(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def quoted(text: object, gutter: str = "  | ") -> list[str]:
    """Return the lines of foreign text behind a gutter, so that none of them passes for a line of ours."""
    return [f"{gutter}{plain(line.expandtabs())}" for line in str(text).split("\n")]


def comparable_name(name: str) -> str:
    """Return a name in the form in which two names are compared. Names that look the same to a reader become equal.

    Case, compatible forms of letters, accents, surrounding spaces, invisible characters and letters of other alphabets
    that look alike do not count.
    """
    folded = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", name).casefold())
    seen = (char for char in folded if (_shows(char) and not unicodedata.combining(char)) or char.isspace())
    return "".join(seen).strip().translate(_LATIN)


def scalar_literal(value: bool | int | float | str | None) -> str:
    """Return a scalar as Python source. Infinite numbers and NaN have no literal."""
    return f'float("{value}")' if isinstance(value, float) and not math.isfinite(value) else repr(value)
