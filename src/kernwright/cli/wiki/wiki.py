"""kernwright wiki: pages for kernel authors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernwright.cli.output import say, write_whole

if TYPE_CHECKING:
    from kernwright.wiki.page import WikiPage

app = typer.Typer(no_args_is_help=True, help="Read the wiki for kernel authors, and check its claims.")

Json = Annotated[bool, typer.Option("--json", help="print one JSON object")]
Limit = Annotated[int, typer.Option(metavar="N", min=1, help="maximum number of pages")]


def complete_pages(incomplete: str) -> list[str]:
    from kernwright.wiki.wiki import the_wiki

    return [page.name for page in the_wiki().pages if page.name.startswith(incomplete)]


@app.command("search")
def search_pages(
    words: Annotated[list[str], typer.Argument(help="a question, or words of the field")],
    limit: Limit = 5,
    as_json: Json = False,
) -> None:
    """Find pages for a question.

    Exit status: 1 if no page has one of the words, else 0.
    """
    from kernwright.wiki.wiki import the_wiki

    hits = the_wiki().search(" ".join(words), limit)
    if as_json:
        _say_json({"pages": [_facts(hit.page) | {"section": hit.section.heading, "score": hit.score} for hit in hits]})
    for hit in [] if as_json else hits:
        say(f"{hit.page.name}: {hit.page.title}")
        say(f"    {hit.page.summary}")
        if hit.section.heading and hit.section.heading != hit.page.title:
            say(f"    section: {hit.section.heading}")
    if not hits:
        say("no page has one of these words; list all pages with: kernwright wiki list", err=True)
        raise typer.Exit(1)


@app.command("for")
def pages_for(
    bottleneck: Annotated[
        str | None, typer.Option(metavar="NAME", help="bound that kernwright ncu reports, such as issue or issue-bound")
    ] = None,
    arch: Annotated[str | None, typer.Option(metavar="NAME", help="architecture, such as sm_90, or cpu")] = None,
    op: Annotated[str | None, typer.Option(metavar="NAME", help="op or group of ops, such as norm")] = None,
    language: Annotated[str | None, typer.Option(metavar="NAME", help="language of the candidate, as triton")] = None,
    limit: Limit = 5,
    as_json: Json = False,
) -> None:
    """Find the pages for a situation: a bottleneck, an architecture, an op, a language.

    Exit status: 1 if no page fits, else 0.
    """
    from kernwright.core.errors import KernwrightError
    from kernwright.wiki.vocabulary import LANGUAGES
    from kernwright.wiki.wiki import the_wiki

    if language and language not in LANGUAGES:
        raise KernwrightError(f"--language {language!r} is not known", f"use {', '.join(LANGUAGES)}")
    if not (bottleneck or arch or op or language):
        raise KernwrightError("no situation is given", "name --bottleneck, --arch, --op or --language")
    fits = the_wiki().fitting(bottleneck, arch, op, limit, language)
    if as_json:
        _say_json({"pages": [_facts(fit.page) | {"reasons": list(fit.reasons), "score": fit.score} for fit in fits]})
    for fit in [] if as_json else fits:
        say(fit.line)
        say(f"    {fit.page.summary}")
        say(f"    fits: {', '.join(fit.reasons) or 'any situation'}")
    if not fits:
        say("no page fits; leave --arch or --op out", err=True)
        raise typer.Exit(1)


@app.command()
def show(
    page: Annotated[str, typer.Argument(help="name of the page", autocompletion=complete_pages)],
    as_json: Json = False,
) -> None:
    """Print a page."""
    from kernwright.wiki.wiki import the_wiki

    found = the_wiki().page(page)
    if as_json:
        _say_json(_facts(found) | {"evidence": list(found.evidence), "text": found.body})
    else:
        say(found.body.strip())


@app.command("list")
def list_pages(as_json: Json = False) -> None:
    """List all pages."""
    from kernwright.wiki.wiki import the_wiki

    pages = the_wiki().pages
    if as_json:
        _say_json({"pages": [_facts(page) for page in pages]})
        return
    width = max(len(page.name) for page in pages)
    for page in pages:
        say(f"{page.name:<{width}}  {page.title}")


@app.command()
def check(
    update: Annotated[
        bool, typer.Option("--update", help="write the present figures, tables of GPUs, pages of campaigns and index")
    ] = False,
    as_json: Json = False,
) -> None:
    """Check the pages of a checkout: evidence of every claim, quoted figures, links, records, generated parts.

    Exit status: 1 if there is a problem, else 0.
    """
    from kernwright.wiki.check import WikiCheck, update_figures
    from kernwright.wiki.wiki import Wiki

    docs = _docs()
    if update:
        _write_generated(docs)
        first = WikiCheck(Wiki(docs / "wiki"), docs.parent)
        first.problems()
        say(f"{update_figures(first)} figures were updated", err=True)
    checked = WikiCheck(Wiki(docs / "wiki"), docs.parent)
    problems = [str(problem) for problem in checked.problems()] + _stale(docs)
    if as_json:
        _say_json({"problems": problems, "pages": len(checked.wiki.pages), "claims": checked.claims})
    else:
        for problem in problems:
            say(problem)
        say(f"{len(checked.wiki.pages)} pages, {checked.claims} claims, {len(problems)} problems")
    raise typer.Exit(1 if problems else 0)


def _docs() -> Path:
    """Return docs/ of the checkout that the package is imported from."""
    from kernwright.core.errors import KernwrightError
    from kernwright.wiki.wiki import INSTALLED, wiki_folder

    folder = wiki_folder()
    if folder.name == INSTALLED:
        raise KernwrightError("the evidence is not part of an installed package", "run this in a checkout")
    return folder.parent


def _write_generated(docs: Path) -> None:
    from kernwright.report.reference.generated_pages import generated_pages, left_over

    for path in left_over(docs, generated_pages(docs)):
        path.unlink()
    for _ in range(2):  # the second time, the index has the pages of the first
        for path, text in generated_pages(docs).items():
            write_whole(path, text, f"make {path.parent} a writable folder")


def _stale(docs: Path) -> list[str]:
    """Return the generated pages that differ from their source, and those whose source is gone."""
    from kernwright.report.reference.generated_pages import generated_pages, left_over

    files = generated_pages(docs)
    wrong = [path for path, text in files.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    return [
        f"{path.relative_to(docs)}: is not up to date: run kernwright wiki check --update"
        for path in [*wrong, *left_over(docs, files)]
    ]


def _facts(page: WikiPage) -> dict[str, Any]:
    return {
        "name": page.name,
        "title": page.title,
        "summary": page.summary,
        "bottleneck": list(page.bottlenecks),
        "architectures": list(page.architectures),
        "ops": list(page.ops),
    }


def _say_json(value: dict[str, Any]) -> None:
    import json

    say(json.dumps(value, indent=2, ensure_ascii=False))
