"""The tools of the wiki: search, pages for a situation, and one page."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from kernwright.core.errors import KernwrightError
from kernwright.mcp.answer import NextCall, ToolAnswer, call
from kernwright.wiki.page import WikiPage
from kernwright.wiki.wiki import the_wiki

MOST_PAGES = 20
MOST_TEXT = 64 << 10  # characters of a page

PageLimit = Annotated[int, Field(ge=1, le=MOST_PAGES, description="maximum number of pages")]


class WikiEntry(BaseModel):
    """A page that was found."""

    name: str
    title: str
    summary: str
    bottlenecks: list[str]
    architectures: list[str]
    ops: list[str]
    section: str | None = Field(default=None, description="the section that fits a search best")
    reasons: list[str] = Field(default_factory=list, description="why the page fits a situation")


class WikiPages(ToolAnswer):
    """Pages of the wiki, the best one first."""

    pages: list[WikiEntry]


class WikiText(ToolAnswer):
    """One page of the wiki."""

    name: str
    title: str
    evidence: list[str] = Field(description="records and public sources that the claims of the page rest on")
    text: str = Field(description="the page as Markdown")


class WikiTools:
    """Answers from the wiki for kernel authors."""

    def wiki_search(
        self,
        words: Annotated[str, Field(description="a question, or words of the field", min_length=1, max_length=1000)],
        limit: PageLimit = 5,
    ) -> WikiPages:
        """Find pages of the wiki for kernel authors: what makes kernels fast or wrong, with evidence."""
        hits = the_wiki().search(words, limit)
        return _pages([_entry(hit.page, section=hit.section.heading or None) for hit in hits])

    def wiki_for(
        self,
        bottleneck: Annotated[
            str | None, Field(description="bound as the tool ncu names it, such as issue or bandwidth", max_length=100)
        ] = None,
        arch: Annotated[str | None, Field(description="architecture such as sm_90", max_length=100)] = None,
        op: Annotated[str | None, Field(description="op or group of ops, such as norm", max_length=100)] = None,
        language: Annotated[
            Literal["cuda", "triton", "cutedsl", "cpp", "python"] | None, Field(description="language of the candidate")
        ] = None,
        limit: PageLimit = 5,
    ) -> WikiPages:
        """Find the pages of the wiki that fit a situation: a bottleneck, an architecture, an op, a language."""
        if not (bottleneck or arch or op or language):
            raise KernwrightError("no situation is given", "give bottleneck, arch, op or language")
        fits = the_wiki().fitting(bottleneck, arch, op, limit, language)
        return _pages([_entry(fit.page, reasons=list(fit.reasons)) for fit in fits])

    def wiki_show(
        self, page: Annotated[str, Field(description="name of a page", min_length=1, max_length=200)]
    ) -> WikiText:
        """Show a page of the wiki."""
        found = the_wiki().page(page)
        return WikiText(
            name=found.name,
            title=found.title,
            evidence=list(found.evidence),
            text=found.body.strip()[:MOST_TEXT],
            next=[call("tasks_list", "find a task to try it on")],
        )

    def page_text(self, page: str) -> str:
        """Return a page of the wiki as Markdown."""
        return self.wiki_show(page).text


def _entry(page: WikiPage, section: str | None = None, reasons: list[str] | None = None) -> WikiEntry:
    return WikiEntry(
        name=page.name,
        title=page.title,
        summary=page.summary,
        bottlenecks=list(page.bottlenecks),
        architectures=list(page.architectures),
        ops=list(page.ops),
        section=section,
        reasons=reasons or [],
    )


def _pages(found: list[WikiEntry]) -> WikiPages:
    after: list[NextCall] = [call("wiki_show", "read the page", page=each.name) for each in found[:2]]
    return WikiPages(pages=found, next=after or [call("wiki_search", "search for other words")])
