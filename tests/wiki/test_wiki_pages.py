"""The wiki of this repository: its claims, its form, and the answers of its search."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from kernwright.cli.main import app
from kernwright.diagnose.ncu.bound.kernel_diagnosis import BOUNDS
from kernwright.ops import FAMILIES
from kernwright.report.reference.generated_pages import generated_pages, left_over
from kernwright.wiki.check import WikiCheck
from kernwright.wiki.claims import LINK
from kernwright.wiki.index import FAILED
from kernwright.wiki.vocabulary import bottleneck_named, bottlenecks, groups_of, op_groups, stem, terms
from kernwright.wiki.wiki import Wiki, the_wiki

ROOT = Path(__file__).parents[2]
WIKI = the_wiki()
ASKED = tomllib.loads((Path(__file__).parent / "questions.toml").read_text(encoding="utf-8"))
QUESTIONS, FURTHER = ASKED["question"], ASKED["further"]
LEAST_ANSWERED, LEAST_FURTHER = 27, 17
GUIDES = {"gpu-sm-75", "gpu-sm-80", "gpu-sm-89", "gpu-sm-90", "gpu-sm-100"}


def test_no_claim_is_without_evidence() -> None:
    check = WikiCheck(WIKI, ROOT)
    assert [str(problem) for problem in check.problems()] == []
    assert check.claims > 50, "the search finds them"
    assert len(WIKI.pages) >= 25 + len(GUIDES)


def test_generated_pages_are_those_of_their_sources() -> None:
    files = generated_pages(ROOT / "docs")
    stale = [path.name for path, text in files.items() if path.read_text(encoding="utf-8") != text]
    assert stale + left_over(ROOT / "docs", files) == [], "run kernwright wiki check --update"
    assert {page.name for page in WIKI.pages if page.name.startswith("gpu-")} == GUIDES


def test_the_search_answers_questions_that_were_written_before_it() -> None:
    assert len(QUESTIONS) == 30
    found = {each["words"]: [hit.page.name for hit in WIKI.search(each["words"], 3)] for each in QUESTIONS}
    missed = {each["words"]: found[each["words"]] for each in QUESTIONS if each["page"] not in found[each["words"]]}
    assert len(QUESTIONS) - len(missed) >= LEAST_ANSWERED, missed


def test_the_search_answers_further_questions() -> None:
    assert len(FURTHER) == 20
    found = {each["words"]: {hit.page.name for hit in WIKI.search(each["words"], 3)} for each in FURTHER}
    missed = [each["words"] for each in FURTHER if not found[each["words"]] & set(each["pages"])]
    assert len(FURTHER) - len(missed) >= LEAST_FURTHER, missed


def test_the_bottlenecks_are_those_that_ncu_reports_and_each_has_a_page() -> None:
    assert bottlenecks() == BOUNDS
    for name in BOUNDS:
        assert [fit for fit in WIKI.fitting(name) if fit.page.name != "reading-ncu"], name
        assert bottleneck_named(f"{name}-bound") == name


def test_the_groups_of_ops_are_ours() -> None:
    assert {op for ops in op_groups().values() for op in ops} == set(FAMILIES)


def test_a_situation_finds_pages_for_it_and_no_others() -> None:
    fits = WIKI.fitting("issue-bound", "sm_90a", "norm_scale_shift", limit=50)
    assert fits[0].page.name == "fewer-instructions"
    assert not {fit.page.name for fit in fits} & (GUIDES - {"gpu-sm-90"})
    assert "rotary-embeddings" not in {fit.page.name for fit in fits}
    assert {fit.page.name for fit in WIKI.fitting("L2", "9.0", "my_norm")} >= {"clusters"}
    assert "clusters" not in {fit.page.name for fit in WIKI.fitting("L2", "sm_80", "norm")}
    assert groups_of("own_scale") == {"own_scale"}


def test_on_a_cpu_no_page_is_about_gpus_alone() -> None:
    fits = WIKI.fitting(arch="cpu", op="norm_scale_shift", language="cpp", limit=50)
    names = {fit.page.name for fit in fits}
    assert names >= {"centred-statistics", "rounding-order", "tvm-ffi"}
    assert not names & {*GUIDES, "vectorised-loads", "launch-overhead", "triton-pitfalls"}


def test_pages_on_another_language_are_left_out() -> None:
    fits = {each: WIKI.fitting("launch", language=each, limit=50) for each in ("triton", "cuda")}
    found = {each: {fit.page.name for fit in fits[each]} for each in fits}
    assert found["triton"] - found["cuda"] == {"triton-pitfalls"}
    assert found["cuda"] - found["triton"] == {"tvm-ffi", "dependent-launch"}


@pytest.mark.parametrize("bottleneck", [None, "issue", "bandwidth"])
def test_what_failed_for_an_op_is_named_whatever_bounds_it(bottleneck: str | None) -> None:
    names = [fit.page.name for fit in WIKI.fitting(bottleneck, "sm_90", "residual_gate")]
    assert "failed-residual-gate-add" in names
    others = WIKI.fitting(bottleneck, "sm_90", "add_norm", limit=50)
    assert "failed-residual-gate-add" not in [fit.page.name for fit in others]


@pytest.mark.parametrize(("first", "second"), [("loads", "loading"), ("CTA", "block"), ("layer_norm", "LayerNorm")])
def test_words_of_one_meaning_are_one_term(first: str, second: str) -> None:
    assert set(terms(first)) & set(terms(second))


def test_stems_do_not_eat_short_words() -> None:
    assert [stem(word) for word in ("is", "gas", "bus", "ring")] == ["is", "gas", "bus", "ring"]


WRITTEN = [page for page in WIKI.pages if not page.name.startswith(FAILED)]


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.name)
def test_a_page_is_short_and_has_its_parts(page) -> None:  # type: ignore[no-untyped-def]
    lines = page.path.read_text(encoding="utf-8").splitlines()
    assert 25 <= len(lines) <= 80
    assert max(len(LINK.sub(lambda link: f"[{link['text']}]", line)) for line in lines) <= 250
    headings = [section.heading for section in page.sections]
    if page.name not in GUIDES:
        assert [each for each in ("When it applies", "What to do", "Why") if each not in headings] == []
    assert "How to check" in headings


def commands() -> Iterator[tuple[str, list[str]]]:
    for page in WIKI.pages:
        for line in page.body.splitlines():
            if line.startswith("kernwright "):
                yield page.name, shlex.split(line, comments=True)[1:]


def test_every_command_of_a_page_exists_with_its_options() -> None:
    root, wrong, seen = typer.main.get_command(app), [], 0
    for page, words in commands():
        command, rest = root, list(words)
        while hasattr(command, "commands") and rest and rest[0] in command.commands:
            command = command.commands[rest.pop(0)]
        known = {name for parameter in command.params for name in parameter.opts + parameter.secondary_opts}
        options = [word for word in rest[: rest.index("--") if "--" in rest else None] if re.match("--?[a-z]", word)]
        seen += 1
        if hasattr(command, "commands") or set(options) - known:
            wrong.append((page, words))
    assert wrong == []
    assert seen > 60, "the search finds them"


def test_a_wheel_has_the_pages_where_the_package_looks_for_them() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    included = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert included["docs/wiki"] == "kernwright/_wiki"
    assert Wiki(ROOT / "docs" / "wiki").pages == WIKI.pages
