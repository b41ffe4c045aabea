"""Index: the page docs/wiki/README.md, which lists all pages by bottleneck."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kernwright.wiki.page import WikiPage
from kernwright.wiki.vocabulary import bottlenecks

INDEX_FILE = "README.md"
FAILED, GUIDE = "failed-", "gpu-"  # how the names of generated pages and of guides begin
_FAILED = """## What did not work

Ideas of [recorded campaigns](../campaigns/README.md) that brought no improvement, by family of ops. A family gets a
page when the records of a campaign for one of its ops are in `evidence/campaigns`.
"""
_TITLE = """# The wiki for kernel authors

Generated from the front matter of the pages by `kernwright wiki check --update`.

Short pages for people and programs that write kernels. Every claim on speed links to a record of the judge, or to a
public source with its version and date; `kernwright wiki check` refuses a claim without such a link. The link of a
figure names the table cell that the figure comes from.

```
kernwright wiki search "row width is odd"                          # pages for a question
kernwright wiki for --bottleneck issue --arch sm_90 --op norm      # pages for a situation
kernwright wiki show vectorised-loads
```
"""


def index_page(pages: Sequence[WikiPage]) -> str:
    """Return the index: the pages of each bottleneck, then those on correctness and measurement, then all others."""
    return "\n".join([_TITLE, *_sections(pages)])


def _sections(pages: Sequence[WikiPage]) -> Iterator[str]:
    guides = [page for page in pages if page.name.startswith(GUIDE)]
    failed = [page for page in pages if page.name.startswith(FAILED)]
    for bottleneck in bottlenecks():
        own = [page for page in pages if page.bottlenecks[:1] == (bottleneck,) and page not in guides]
        further = [page for page in pages if bottleneck in page.bottlenecks[1:] and page not in guides]
        yield f"## Bound by {bottleneck}\n"
        yield from (f"- [{page.title}]({page.name}.md)" for page in own)
        also = ", ".join(f"[{page.name}]({page.name}.md)" for page in further)
        yield f"{'- also' if own else '- see'}: {also}\n" if further else ""
    yield "## Correctness and measurement\n"
    yield from (f"- [{page.title}]({page.name}.md)" for page in pages if not page.bottlenecks and page not in failed)
    yield f"\n{_FAILED}"
    yield from (f"- [{page.title}]({page.name}.md)" for page in failed)
    yield "\n## GPUs\n"
    yield from (f"- [{page.title}]({page.name}.md)" for page in guides)
    yield ""
