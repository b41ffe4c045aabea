"""Check of the wiki: every claim has evidence, every link has a target, every quoted figure is up to date."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from kernwright.core.errors import BadFile, KernwrightError
from kernwright.wiki.claims import FIGURE, PageLink, sentences_of, unclosed_code
from kernwright.wiki.index import FAILED, GUIDE
from kernwright.wiki.page import WikiPage
from kernwright.wiki.quoted_cell import agrees, corrected, quoted_cell, slug
from kernwright.wiki.vocabulary import ALL_ARCHITECTURES, ANY_OP, CPU, LANGUAGES, bottlenecks, op_groups
from kernwright.wiki.wiki import Wiki

SOURCES = "sources.toml"
RUN, SOURCE = "run:", "source:"
TABLE_MARK = "<!-- gpu-table:"
_ARCHITECTURE = re.compile(r"sm_\d{2,3}")
_DATE = re.compile(r"\d{4}(-\d\d){0,2}")
# Pages below the checkout that hold figures of records: each of them is generated, and compared with its source by a
# test or by a command. A generated page says so within so many characters.
RECORDS = (
    "docs/results/*.md", "docs/field/*.md", "docs/campaigns/*.md", "docs/gpus.md", "docs/figures*.md",
    "docs/denoise.md",
)  # fmt: skip
GENERATED = re.compile(r"^Generated (?:from|by) ", re.MULTILINE)
HEAD = 3000


@dataclass(frozen=True)
class WikiProblem:
    """One problem of one page."""

    page: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.what}"


@dataclass
class WikiCheck:
    """The check of a wiki in a checkout.

    Attributes:
        root: the checkout, with docs/ and evidence/.
        corrections: figures that are out of date, by page: the link as it is, and the link with the present figure.
        claims: the number of sentences that claim something.
    """

    wiki: Wiki
    root: Path
    corrections: dict[Path, list[tuple[str, str]]] = field(default_factory=dict)
    claims: int = 0

    def problems(self) -> list[WikiProblem]:
        """Return all problems of all pages."""
        found = [problem for page in self.wiki.pages for problem in self._of_page(page)]
        return found + list(self._unused_sources())

    @cached_property
    def sources(self) -> dict[str, dict[str, str]]:
        """Return the public sources by name. Raises BadFile if one has no title, version, date or address."""
        path = self.wiki.folder / SOURCES
        found: dict[str, dict[str, str]] = tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        for name, entry in found.items():
            for key in ("title", "version", "date", "url"):
                if not entry.get(key):
                    raise BadFile(path, f"{name}.{key}", "is missing", "every source has title, version, date and url")
            if not _DATE.fullmatch(entry["date"]):
                raise BadFile(path, f"{name}.date", f"got {entry['date']!r}", "write it as 2026-11-18, 2026-11 or 2026")
        return found

    @cached_property
    def runs(self) -> frozenset[str]:
        """Return the runs that the archives in evidence/ hold."""
        heads = sorted((self.root / "evidence").rglob("*.heads.jsonl"))
        return frozenset(run for path in heads for run in _runs_in(path))

    def _of_page(self, page: WikiPage) -> Iterator[WikiProblem]:
        yield from (WikiProblem(page.path.name, 1, what) for what in self._of_front_matter(page))
        if unclosed_code(page.body):
            yield WikiProblem(page.path.name, page.body_line, "a block of code has no end")
        if TABLE_MARK in page.body and not page.name.startswith(GUIDE):
            yield WikiProblem(page.path.name, 1, "only the page of an architecture has a generated table of GPUs")
        used: set[str] = set()
        for sentence in sentences_of(page.body, page.body_line):
            evidence = False
            self.claims += sentence.is_claim
            for link in sentence.links:
                key, problem = self._of_link(page, link)
                evidence |= key is not None and bool(link.title or key.startswith(SOURCE))
                used |= {key} if key else set()
                if problem:
                    yield WikiProblem(page.path.name, sentence.line, problem)
            if sentence.unread_link:
                what = f"the link {sentence.unread_link!r} is not checked: write [text](target)"
                yield WikiProblem(page.path.name, sentence.line, what)
            if page.name.startswith(FAILED):  # generated: its words are those of agents, its figures are quoted
                continue
            for figure in sentence.bare_figures:
                yield WikiProblem(
                    page.path.name,
                    sentence.line,
                    f"the figure {figure!r} is not quoted: make it a link to its evidence",
                )
            if sentence.comparison and not evidence:
                what = f'the claim "{sentence.comparison}" has no evidence: link a record or a source in the sentence'
                yield WikiProblem(page.path.name, sentence.line, what)
        listed = set(page.evidence)
        for key in sorted(used - listed):
            yield WikiProblem(page.path.name, 1, f"evidence: {key} is linked but not listed")
        for key in sorted(each for each in listed - used if not each.startswith(RUN)):
            yield WikiProblem(page.path.name, 1, f"evidence: {key} is listed but not linked")

    def _of_front_matter(self, page: WikiPage) -> Iterator[str]:
        for text in (page.title, page.topic):
            if any(sentence.is_claim for sentence in sentences_of(text)):
                yield f'"{text}" is a claim: put it into the text, with its evidence'
        for name in page.bottlenecks:
            if name not in bottlenecks():
                yield f"bottleneck: {name} is no bound that kernwright ncu reports"
        for name in page.architectures:
            if name not in (ALL_ARCHITECTURES, CPU) and not _ARCHITECTURE.fullmatch(name):
                yield f"architectures: {name} is neither all, cpu nor a name such as sm_90"
        yield from (
            f"languages: {name} is no language of candidates" for name in page.languages if name not in LANGUAGES
        )
        known = {ANY_OP, *op_groups(), *(op for ops in op_groups().values() for op in ops)}
        yield from (f"ops: {name} is neither an op nor a group of ops" for name in page.ops if name not in known)
        for key in page.evidence:
            if key.startswith(RUN) and key.removeprefix(RUN) not in self.runs:
                yield f"evidence: the run {key.removeprefix(RUN)} is not in evidence/"
            elif key.startswith(SOURCE) and key.removeprefix(SOURCE) not in self.sources:
                yield f"evidence: {SOURCES} has no source {key.removeprefix(SOURCE)}"

    def _of_link(self, page: WikiPage, link: PageLink) -> tuple[str | None, str | None]:
        """Return the evidence that a link leads to, if it is evidence, and the problem of the link, if it has one."""
        if link.target.startswith(("http://", "https://")):
            name = next((name for name, entry in self.sources.items() if entry["url"] == link.target), None)
            if name is None:
                return None, f"{link.target} is not in {SOURCES}, with its version and date"
            return SOURCE + name, None
        target, _, anchor = link.target.partition("#")
        path = (page.path.parent / target).resolve() if target else page.path
        if not path.exists() or not path.is_relative_to(self.root.resolve()):
            return None, f"broken link: {link.target}"
        if path.suffix == ".md" and anchor and not _has_anchor(path, anchor):
            return None, f"broken link: {link.target} has no such section"
        if path.name.endswith(".heads.jsonl"):
            return self._of_run(path, link)
        if not self._is_record(path):
            return None, f"{link.target} is no record: {link.text} is not proven" if FIGURE.search(link.text) else None
        key = path.relative_to(self.root.resolve()).as_posix()
        return key, self._of_quote(page, path, anchor, link)

    def _of_run(self, heads: Path, link: PageLink) -> tuple[str | None, str | None]:
        if not link.title or link.title not in _runs_in(heads):
            return None, f"the run {link.title} is not in {link.target}"
        if FIGURE.search(link.text):
            return None, f"{link.text}: a run has no cell to compare it with: quote a generated page"
        return f"{RUN}{link.title}", None

    def _is_record(self, path: Path) -> bool:
        below = path.relative_to(self.root.resolve())
        return any(below.match(pattern) for pattern in RECORDS) and _is_generated(path)

    def _of_quote(self, page: WikiPage, path: Path, anchor: str, link: PageLink) -> str | None:
        if not link.title:
            return f'{link.text}: name the cell in the title: "row | column"' if FIGURE.search(link.text) else None
        try:
            value = quoted_cell(path, anchor, link.title)
        except KernwrightError as error:
            return f"{error.cause}; {error.remedy}"
        if agrees(link.text, value):
            return None
        before = f'[{link.text}]({link.target} "{link.title}")'
        after = f'[{corrected(link.text, value)}]({link.target} "{link.title}")'
        self.corrections.setdefault(page.path, []).append((before, after))
        return f"{link.text} is {corrected(link.text, value)} now in {link.target} ({link.title})"

    def _unused_sources(self) -> Iterator[WikiProblem]:
        used = {key for page in self.wiki.pages for key in page.evidence}
        for name in self.sources:
            if SOURCE + name not in used:
                yield WikiProblem(SOURCES, 1, f"no page uses the source {name}")


def update_figures(check: WikiCheck) -> int:
    """Write the present figures into the pages. Return the number of corrections."""
    for path, pairs in check.corrections.items():
        text = path.read_text(encoding="utf-8")
        for before, after in pairs:
            text = text.replace(before, after)
        path.write_text(text, encoding="utf-8")
    return sum(len(pairs) for pairs in check.corrections.values())


def _runs_in(heads: Path) -> set[str]:
    return {str(json.loads(line)["body"]["run"]) for line in heads.read_text(encoding="utf-8").splitlines()}


def _has_anchor(path: Path, anchor: str) -> bool:
    headings = re.findall(r"^#{1,6}\s+(.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return anchor in {slug(heading) for heading in headings}


def _is_generated(path: Path) -> bool:
    return bool(GENERATED.search(path.read_text(encoding="utf-8")[:HEAD]))
