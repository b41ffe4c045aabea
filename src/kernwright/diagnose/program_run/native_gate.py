"""NativeGate: finds signs in a program's output that the intended backend was not used."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from kernwright.core.errors import KernwrightError

REMEDY = "its times are not those of the intended backend: fix what it names, and run again"
WINDOW = 4096  # bytes kept of an incomplete line; a sign that spans more bytes is not found
CONTEXT = 64  # bytes of the window that were already searched; they show the text before a sign
MOST_SHOWN = 300  # characters of a line
_ESCAPE = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]"  # colours and cursor
    rb"|\][^\x07\x1b\r\n]*(?:\x07|\x1b\\)"  # titles and links
    rb"|[PX^_][^\x1b\r\n]*\x1b\\"
    rb"|[ -/]+[0-~]|[0-OQ-WYZ\\`-~])"
)
_OPEN_ESCAPE = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b\r\n]*\x1b?|[PX^_][^\x1b\r\n]*\x1b?|[ -/]*)\Z", re.DOTALL
)
_INVISIBLE = bytes(set(range(32)) - {*b"\t\n\r"}) + b"\x7f"
_NEGATED = re.compile(rb"(?:\b(?:not|never|without|instead of|no longer)|n't)[ \t]+\Z")
_WORD = re.compile(rb"\w")


@dataclass(frozen=True)
class Sign:
    """A message that a program prints if it does not use the intended backend.

    Both are searched in lower-case output.

    Attributes:
        keyword: bytes that every such message has. Output without them is not searched further.
        pattern: the message; if it begins with a word, only a whole word counts.
    """

    keyword: bytes
    pattern: re.Pattern[bytes]


def _phrase(words: str) -> Sign:
    """Return the sign of a phrase: its words in one line in any case, as whole words."""
    spaced = rb"[ \t]+".join(re.escape(word.encode()) for word in words.lower().split())
    return Sign(b"diffusers", re.compile(spaced + rb"(?!\w)"))


SGLANG_SIGNS = tuple(
    map(_phrase, ("Falling back to diffusers backend", "Using diffusers backend", "Loaded diffusers pipeline"))
)
# The texts of the warning, and of both classes as uncaught errors. A strict run raises CannotRun, and the program may
# catch and log it.
STRICT_SIGNS = (
    Sign(b"fallback: ", re.compile(rb"(?::\d+: |choice\.fallback\.)fallback: ")),
    Sign(b"cannotrun: ", re.compile(rb"cannotrun: ")),
)


class NotNative(KernwrightError):
    """A run did not use the intended backend. Its numbers are void."""


class NativeGate:
    """Searches one stream of output as it arrives, in pieces of any size.

    Colour codes and other invisible characters are ignored. A sign may be split over any number of pieces.
    """

    def __init__(self, signs: Iterable[Sign] = SGLANG_SIGNS) -> None:
        self._signs = tuple(signs)
        self._escape = b""  # the beginning of an escape sequence
        self._line = b""  # the end of the visible text, without its last line's end
        self._searched = 0  # position up to which signs have been searched

    def feed(self, piece: bytes) -> str | None:
        """Take the next piece of output. Return the line of the first sign, or None."""
        self._line += self._visible(piece)
        found = self._search(is_over=False)
        start = max(self._line.rfind(b"\n"), self._line.rfind(b"\r")) + 1
        self._searched = 0 if start else self._searched
        self._line = self._line[start:]
        if len(self._line) > WINDOW:
            self._line, self._searched = self._line[-WINDOW:], CONTEXT
        return found

    def settle(self) -> str | None:
        """Return the line of a sign at the very end of the output. Call it when the program is silent or has ended."""
        return self._search(is_over=True)

    def _visible(self, piece: bytes) -> bytes:
        raw = self._escape + piece
        opened = _OPEN_ESCAPE.search(raw, max(0, len(raw) - WINDOW)) if b"\x1b" in raw else None
        self._escape = raw[opened.start() :] if opened else b""
        raw = raw[: opened.start()] if opened else raw
        return (_ESCAPE.sub(b"", raw) if b"\x1b" in raw else raw).translate(None, _INVISIBLE)

    def _search(self, is_over: bool) -> str | None:
        lowered = self._line.lower()
        for sign in self._signs:
            if sign.keyword not in lowered:
                continue
            for match in sign.pattern.finditer(lowered, self._searched):
                if match.end() == len(lowered) and not is_over:
                    continue  # the next piece may continue its last word
                if not _is_inside_a_word(lowered, match.start()) and not _is_negated(lowered, match.start()):
                    return self._line_at(match.start())
        return None

    def _line_at(self, place: int) -> str:
        line = re.split(rb"[\r\n]", self._line[:place])[-1] + re.split(rb"[\r\n]", self._line[place:])[0]
        return line.decode(errors="replace").strip()[:MOST_SHOWN]


def _is_inside_a_word(text: bytes, place: int) -> bool:
    return bool(place and _WORD.match(text, place) and _WORD.match(text, place - 1))


def _is_negated(text: bytes, place: int) -> bool:
    return _NEGATED.search(text, max(0, place - CONTEXT), place) is not None


def missing_kernels(names: Iterable[str], expected: Iterable[str]) -> list[str]:
    """Return the expected patterns that match no kernel of a census.

    Args:
        names: names of the kernels that ran, as in a trace.
        expected: regular expressions that are searched in the names.
    """
    seen = list(dict.fromkeys(names))
    return [pattern for pattern in expected if not any(re.search(pattern, name) for name in seen)]


def require_kernels(names: Iterable[str], expected: Iterable[str]) -> None:
    """Raise NotNative if a census lacks an expected kernel."""
    seen = list(dict.fromkeys(names))
    if missing := missing_kernels(seen, expected):
        ran = (
            f"{len(seen)} kernels ran, such as {', '.join(name[:80] for name in seen[:3])}" if seen else "no kernel ran"
        )
        raise NotNative(f"no kernel matches {', '.join(missing)}: {ran}", REMEDY)
