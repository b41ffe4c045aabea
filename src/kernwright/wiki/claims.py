"""Claims: the sentences of a page that claim something about speed or size, and the links that support them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_FENCE = re.compile(r"^\s*(```|~~~)")
_TABLE_OF_GPUS = re.compile(r"<!-- gpu-table: begin -->.*?<!-- gpu-table: end -->", re.DOTALL)
_CODE = re.compile(r"`[^`]*`")
_COMMENT = re.compile(r"(?:#|//)\s(.*)$")
LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]*)(?:\s+\"(?P<title>[^\"]*)\")?\)")
# Links that LINK does not read, so that nobody checks where they lead.
UNREAD_LINK = re.compile(r"\[[^\]]*\]\[[^\]]*\]|^\s*\[[^\]]+\]:|<a\s|<https?:|https?://", re.IGNORECASE)
_BLOCK_START = re.compile(r"^\s*([-*+]|\d+\.)\s+|^\s*\||^#{1,6}\s")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`\[(*])")
_TABLE_RULE = re.compile(r"^\s*\|[\s:|-]+\|\s*$")

# A number with a unit of time, of a rate or of a size, a ratio, or a percentage.
_SECONDS = r"(?:nano|micro|milli)?sec(?:ond)?s?"
FIGURE = re.compile(
    rf"(?<![\w.])\d[\d,.]*\s?(?:%|percent\b|[x×](?!\w)|-?fold\b|[numµμ]?s\b|{_SECONDS}\b"
    r"|[KMGT]i?(?:B|bit)(?:/s)?\b|[GT]FLOPs?(?:/s)?\b|[MG]Hz\b|cycles?\b)"
)
_WORDS = (
    "two three four five six seven eight nine ten eleven twelve fifteen twenty thirty forty fifty sixty seventy eighty "
    "ninety hundred dozen several"
)
_NUMBER = rf"(?:{'|'.join(_WORDS.split())}|\d[\d.]*)"
_PART = r"(?:half|(?:a|one|two) (?:third|quarter|fifth|tenth)s?) (?:of )?(?:the|its) (?:time|speed|rate|bandwidth)"
COMPARISON = re.compile(
    r"\b(?:faster|fastest|slower|slowest|quicker|quickest|speed-?ups?|speeds? up|slows? down|cheaper|cheapest"
    r"|as (?:fast|slow) as|outperforms?|outruns?|twice (?:as|the)|(?:doubles|halves|triples) the|(?:two|three|ten)fold"
    rf"|{_PART}|orders? of magnitude|(?:by a |a )?factor (?:of )?{_NUMBER}"
    rf"|{_NUMBER} times (?:as|faster|slower|more|less|the|of)|{_NUMBER}[ -](?:percent|{_SECONDS}|cycles?)"
    r"|costs? (?:less|more|nothing)|saves? (?:time|most)|(?:less|more) time than|beats"
    r"|(?:is|are|was) (?:very |too |much )?(?:slow|fast|cheap|expensive)"
    r"|(?:improves?|better|higher|lower|cuts|lowers|shortens) (?:the )?(?:time|speed|throughput|latency))\b",
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
        """Return the figures that are not the text of a link, also those in code."""
        return FIGURE.findall(LINK.sub(" ", self.text))

    @property
    def unread_link(self) -> str | None:
        """Return the beginning of a link in another form than [text](target "title"), if there is one."""
        match = UNREAD_LINK.search(_CODE.sub(" ", LINK.sub(" ", self.text)))
        return match[0] if match else None

    @property
    def is_claim(self) -> bool:
        quoted = any(FIGURE.search(link.text) for link in self.links)
        return bool(self.comparison or self.bare_figures or quoted)


def sentences_of(body: str, first_line: int = 0) -> Iterator[Sentence]:
    """Yield the sentences of a Markdown text. Of blocks of code, only comments count. Tables of GPUs are left out."""
    body = _TABLE_OF_GPUS.sub(lambda block: "\n" * block[0].count("\n"), body)
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
        if was_fenced and fenced and (comment := _COMMENT.search(line)):
            yield number, comment[1]
        if line.strip() and not (was_fenced or fenced) and not _TABLE_RULE.match(line):
            start = start if kept else number
            kept.append(line.strip())
    if kept:
        yield start, " ".join(kept)


def unclosed_code(body: str) -> bool:
    """Return whether a block of code has no end, so that all text behind it counts as code."""
    return sum(bool(_FENCE.match(line)) for line in body.splitlines()) % 2 == 1
