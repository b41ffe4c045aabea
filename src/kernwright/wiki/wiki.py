"""Wiki: all pages, loaded once, with the search and the choice of pages for a situation.

from kernwright.wiki.wiki import the_wiki

the_wiki().search("how wide should a load be")
the_wiki().fitting("issue", "sm_90", "norm_scale_shift")
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from kernwright.core.errors import FileProblems, KernwrightError, did_you_mean
from kernwright.wiki.page import WikiPage, read_page
from kernwright.wiki.ranking import SearchHit, SearchIndex
from kernwright.wiki.vocabulary import ALL_ARCHITECTURES, ANY_OP, bottleneck_named, groups_of

INSTALLED = "_wiki"  # folder of the pages in a built package
INDEX = "README"
MAIN_FIT, FURTHER_FIT, OP_FIT, ARCHITECTURE_FIT = 4.0, 2.0, 1.5, 0.5


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
        self, bottleneck: str | None = None, arch: str | None = None, op: str | None = None, limit: int = 5
    ) -> list[PageFit]:
        """Return the pages that fit a bottleneck, an architecture and an op, the best first.

        Args:
            bottleneck: a bound as `kernwright ncu` names it, or a usual word for it, such as issue-bound.
            arch: an architecture such as sm_90 or sm_90a. A page on others is left out.
            op: an op or a group of ops. A page on other ops is left out.
        """
        wanted = bottleneck_named(bottleneck) if bottleneck else None
        groups = groups_of(op) if op else frozenset[str]()
        fits = [fit for page in self.pages if (fit := _fit(page, wanted, _plain(arch), groups))]
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
    """Return sm_90 for sm_90, sm90, 9.0 and sm_90a."""
    if not arch:
        return None
    digits = "".join(letter for letter in arch if letter.isdigit())
    if not digits:
        raise KernwrightError(f"{arch!r} is not an architecture", "use a name such as sm_80, sm_90 or sm_100")
    return f"sm_{digits}"


def _fit(page: WikiPage, bottleneck: str | None, arch: str | None, groups: frozenset[str]) -> PageFit | None:
    """Return how well a page fits, or None if it is on another bottleneck, architecture or op."""
    score, reasons = 0.0, list[str]()
    if bottleneck:
        if bottleneck not in page.bottlenecks:
            return None
        score += MAIN_FIT if page.bottlenecks[0] == bottleneck else FURTHER_FIT
        reasons.append(f"bottleneck {bottleneck}")
    if arch:
        if arch in page.architectures:
            score += ARCHITECTURE_FIT
            reasons.append(f"architecture {arch}")
        elif ALL_ARCHITECTURES not in page.architectures:
            return None
    if groups:
        common = _common(page.ops, groups)
        if common:
            score += OP_FIT
            reasons.append(f"op {', '.join(common)}")
        elif ANY_OP not in page.ops:
            return None
    return PageFit(page, score, tuple(reasons))


def _common(ops: Sequence[str], groups: frozenset[str]) -> list[str]:
    return [each for each in ops if each in groups]
