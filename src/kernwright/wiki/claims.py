"""Claims: the sentences of a page that claim something about speed or size, and the links that support them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_FENCE = re.compile(r"^\s*(```|~~~)")
_GENERATED = re.compile(r"<!-- (?P<name>[\w-]+): begin .*?<!-- (?P=name): end -->", re.DOTALL)
_CODE = re.compile(r"`[^`]*`")
LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]*)(?:\s+\"(?P<title>[^\"]*)\")?\)")
_BLOCK_START = re.compile(r"^\s*([-*+]|\d+\.)\s+|^\s*\||^#{1,6}\s")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`\[(*])")
_TABLE_RULE = re.compile(r"^\s*\|[\s:|-]+\|\s*$")

# A number with a unit of time, of a rate or of a size, a ratio, or a percentage.
FIGURE = re.compile(
    r"(?<![\w.])\d[\d,.]*\s?(?:%|percent\b|[x×](?!\w)|[num]s\b|µs\b|s\b|(?:(?:nano|micro|milli)?seconds?)\b|[KMGT]i?B(?:/s)?\b|[GT]FLOPs?(?:/s)?\b|cycles?\b)"
)
_NUMBER = r"(?:two|three|four|five|six|eight|ten|twelve|\d[\d.]*)"
COMPARISON = re.compile(
    r"\b(?:faster|fastest|slower|slowest|quicker|quickest|speed-?ups?|speeds up|slows down|cheaper|cheapest"
    r"|as (?:fast|slow) as|outperforms?|twice as|half the time|doubles the|halves the"
    rf"|{_NUMBER} times (?:as|faster|slower|more|less|the|of)"
    r"|costs? (?:less|more|nothing)|saves? (?:time|most))\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class PageLink:
    """A link of a page. The title of a link to a generated page names the cell that is quoted."""

    text: str
    target: str
    title: str | None
    line: int


@dataclass(frozen=True)
class Sentence:
    """A sentence, an item of a list, a heading or a row of a table, with its links."""

    text: str
    line: int
    links: tuple[PageLink, ...]

    @property
    def comparison(self) -> str | None:
        """Return the word that compares speeds, if there is one."""
        match = COMPARISON.search(_CODE.sub(" ", LINK.sub(lambda link: link["text"], self.text)))
        return match[0] if match else None

    @property
    def bare_figures(self) -> list[str]:
        """Return the figures that are not the text of a link."""
        return FIGURE.findall(_CODE.sub(" ", LINK.sub(" ", self.text)))

    @property
    def is_claim(self) -> bool:
        quoted = any(FIGURE.search(link.text) for link in self.links)
        return bool(self.comparison or self.bare_figures or quoted)


def sentences_of(body: str, first_line: int = 0) -> Iterator[Sentence]:
    """Yield the sentences of a Markdown text. Blocks of code and generated blocks are left out."""
    body = _GENERATED.sub(lambda block: "\n" * block[0].count("\n"), body)
    for line, text in _blocks(body, first_line):
        for part in _SENTENCE_END.split(text):
            links = [PageLink(link["text"], link["target"], link["title"], line) for link in LINK.finditer(part)]
            if part.strip():
                yield Sentence(part.strip(), line, tuple(links))


def _blocks(body: str, first_line: int) -> Iterator[tuple[int, str]]:
    """Yield paragraphs, items of lists, headings and rows of tables, each as one line with its number."""
    kept: list[str] = []
    start, fenced = first_line + 1, False
    for number, line in enumerate(body.splitlines(), start=first_line + 1):
        was_fenced = fenced
        fenced ^= bool(_FENCE.match(line))
        ends = not line.strip() or was_fenced or fenced or bool(_BLOCK_START.match(line))
        if ends and kept:
            yield start, " ".join(kept)
            kept = []
        if line.strip() and not (was_fenced or fenced) and not _TABLE_RULE.match(line):
            start = start if kept else number
            kept.append(line.strip())
    if kept:
        yield start, " ".join(kept)
