"""Wiki: all pages, loaded once, with the search and the choice of pages for a situation.

from kernwright.wiki.wiki import the_wiki

the_wiki().search("how wide should a load be")
the_wiki().fitting("issue", "sm_90", "norm_scale_shift")
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from kernwright.core.errors import FileProblems, KernwrightError, did_you_mean
from kernwright.wiki.page import WikiPage, read_page
from kernwright.wiki.ranking import SearchHit, SearchIndex
from kernwright.wiki.vocabulary import ALL_ARCHITECTURES, ANY_OP, CPU, bottleneck_named, groups_of, op_groups

INSTALLED = "_wiki"  # folder of the pages in a built package
INDEX = "README"
MAIN_FIT, FURTHER_FIT, ARCHITECTURE_FIT, LANGUAGE_FIT = 4.0, 2.0, 0.5, 1.0
OWN_OP_FIT, OP_FIT, FURTHER_OP_FIT = 5.0, 1.5, 0.25
NO_DEMAND = 0.0, ""


@dataclass(frozen=True)
class PageFit:
    """A page for a situation, with the reasons why it fits."""

    page: WikiPage
    score: float
    reasons: tuple[str, ...]

    @property
    def line(self) -> str:
        return f"{self.page.name}: {self.page.title}"


@dataclass(frozen=True)
class Wiki:
    """The pages of one folder."""

    folder: Path

    @cached_property
    def pages(self) -> tuple[WikiPage, ...]:
        """Return all pages by name. Raises BadFiles with the problems of all pages whose front matter is wrong."""
        problems, found = FileProblems(), list[WikiPage]()
        for path in sorted(self.folder.glob("*.md")):
            if path.stem != INDEX:
                with problems.collected():
                    found.append(read_page(path))
        problems.raise_any()
        return tuple(found)

    @cached_property
    def _index(self) -> SearchIndex:
        return SearchIndex(self.pages)

    def page(self, name: str) -> WikiPage:
        """Return the page of a name."""
        by_name = {page.name: page for page in self.pages}
        if name not in by_name:
            raise KernwrightError(
                f"the wiki has no page {name!r}", did_you_mean(name, by_name, "list them with `kernwright wiki list`")
            )
        return by_name[name]

    def search(self, words: str, limit: int = 5) -> list[SearchHit]:
        """Return the pages for a query in plain words, the best first."""
        return self._index.search(words, limit)

    def fitting(
        self,
        bottleneck: str | None = None,
        arch: str | None = None,
        op: str | None = None,
        limit: int = 5,
        language: str | None = None,
    ) -> list[PageFit]:
        """Return the pages that fit a situation, the best first. A page on another situation is left out.

        Args:
            bottleneck: a bound as `kernwright ncu` names it, or a usual word for it, such as issue-bound.
            arch: an architecture such as sm_90 or sm_90a, or cpu.
            op: an op or a group of ops. A page that names the op itself fits any bottleneck.
            language: the language of the candidate, such as triton.
        """
        situation = _Situation(
            bottleneck_named(bottleneck) if bottleneck else None,
            _plain(arch),
            op,
            groups_of(op) if op else frozenset(),
            language,
        )
        fits = [fit for page in self.pages if (fit := situation.fit(page))]
        return sorted(fits, key=lambda fit: (-fit.score, fit.page.name))[:limit]


@cache
def the_wiki() -> Wiki:
    """Return the wiki of this checkout, or of the installed package."""
    return Wiki(wiki_folder())


def wiki_folder() -> Path:
    """Return the folder of the pages: `docs/wiki` of the checkout, or the copy in the package."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package.parents[1] / "docs" / "wiki", package / INSTALLED):
        if folder.is_dir():
            return folder
    raise KernwrightError("this installation of Kernwright has no wiki", "install it again, or use a checkout")


def _plain(arch: str | None) -> str | None:
    """Return sm_90 for sm_90, sm90, 9.0 and sm_90a, and cpu for cpu."""
    if not arch or arch == CPU:
        return arch or None
    found = re.fullmatch(r"(?:sm_?)?(\d+)\.?(\d)[a-z]?", arch.strip().casefold())
    if not found:  # the numbers of products are no architectures: an A100 is no sm_100
        raise KernwrightError(f"{arch!r} is not an architecture", "use a name such as sm_80, sm_90 or sm_100, or cpu")
    return f"sm_{found[1]}{found[2]}"


@dataclass(frozen=True)
class _Situation:
    bottleneck: str | None
    arch: str | None
    op: str | None
    groups: frozenset[str]
    language: str | None

    def fit(self, page: WikiPage) -> PageFit | None:
        """Return how well a page fits, or None if it is on another bottleneck, architecture, op or language."""
        found = [self._bottleneck(page), self._arch(page), self._op(page), self._language(page)]
        parts = [part for part in found if part]
        if len(parts) < len(found):
            return None
        return PageFit(page, sum(score for score, _ in parts), tuple(reason for _, reason in parts if reason))

    def _bottleneck(self, page: WikiPage) -> tuple[float, str] | None:
        if not self.bottleneck or (not page.bottlenecks and self.op in page.ops):
            return NO_DEMAND
        if self.bottleneck not in page.bottlenecks:
            return None
        is_main = page.bottlenecks[0] == self.bottleneck
        return MAIN_FIT if is_main else FURTHER_FIT, f"bottleneck {self.bottleneck}"

    def _arch(self, page: WikiPage) -> tuple[float, str] | None:
        if not self.arch:
            return NO_DEMAND
        if self.arch in page.architectures:
            return ARCHITECTURE_FIT, f"architecture {self.arch}"
        return NO_DEMAND if ALL_ARCHITECTURES in page.architectures and self.arch != CPU else None

    def _op(self, page: WikiPage) -> tuple[float, str] | None:
        if not self.groups:
            return NO_DEMAND
        if self.op in page.ops and self.op not in op_groups():
            return OWN_OP_FIT, f"op {self.op}"
        if common := [each for each in page.ops if each in self.groups]:
            return OP_FIT + FURTHER_OP_FIT * (len(common) - 1), f"op {', '.join(common)}"
        return NO_DEMAND if ANY_OP in page.ops else None

    def _language(self, page: WikiPage) -> tuple[float, str] | None:
        if not self.language or not page.languages:
            return NO_DEMAND
        return (LANGUAGE_FIT, f"language {self.language}") if self.language in page.languages else None
