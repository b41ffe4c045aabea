"""The check of a wiki: every kind of problem, on a small wiki of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernwright.core.errors import BadFile, KernwrightError
from kernwright.wiki.check import WikiCheck, update_figures
from kernwright.wiki.quoted_cell import quoted_cell
from kernwright.wiki.wiki import Wiki

RESULTS = """# Results

Generated from a ledger by a command.

## Summary

| rows of | against | rows |
|---|---|---:|
| norm | compile | 2 |
| norm | eager | 3 |

## device

| row | compile | eager |
|---|---|---|
| `s19` | 2.41, 1.80, **0.94x (0.83–0.96)**† | declined |
| `s195` | 3.24, 2.29, 1.40x (1.28–1.46) | 13.0, 2.29, 5.64x (5.13–5.86) |

## Times

| row | eager: device / stream / wall | compile |
|---|---|---|
| `s19` | 12.1 / 60.6 / 129.5, copy 8% | 3.6 / 124.8 / 225.3, 3.36x (3.35–3.36), copy 28% |
"""
RUN = "20261118T013905598569Z-ffcb75e8"
SOURCES = '[guide]\ntitle = "Guide"\nversion = "1"\ndate = "2026-01"\nurl = "https://example.org/guide"\n'
PAGE = """---
title: A page
topic: a topic
bottleneck: [{bottleneck}]
architectures: [{arch}]
ops: [{ops}]
evidence: [{evidence}]
---
# A page

{text}
"""


class MadeWiki:
    def __init__(self, root: Path) -> None:
        self.root = root
        for folder in ("docs/wiki", "docs/results", "evidence/gpu"):
            (root / folder).mkdir(parents=True)
        (root / "docs/results/norm.md").write_text(RESULTS)
        (root / "docs/plain.md").write_text("# Plain\n\nA page that somebody typed.\n")
        (root / "docs/wiki/sources.toml").write_text("")
        (root / "evidence/gpu/ops.heads.jsonl").write_text(json.dumps({"body": {"run": RUN}}))

    def problems(self, text: str, evidence: str = "", **facts: str) -> list[str]:
        given = {"bottleneck": "issue", "arch": "sm_90", "ops": "norm", **facts}
        page = PAGE.format(text=text, evidence=evidence, **given)
        (self.root / "docs/wiki/a-page.md").write_text(page)
        return [problem.what for problem in self.check.problems()]

    @property
    def check(self) -> WikiCheck:
        return WikiCheck(Wiki(self.root / "docs" / "wiki"), self.root)


@pytest.fixture
def made(tmp_path: Path) -> MadeWiki:
    return MadeWiki(tmp_path)


GOOD = [
    ("Nothing is claimed here.", ""),
    ('It takes [2.29 us](../results/norm.md#device "s195 | compile | ours").', "docs/results/norm.md"),
    ('It is slower: [0.94x](../results/norm.md#device "s19 | compile | ratio").', "docs/results/norm.md"),
    ('Of [3](../results/norm.md#summary "norm, eager | rows") rows, none.', "docs/results/norm.md"),
    ('[28%](../results/norm.md#times "s19 | compile | copy") of a copy.', "docs/results/norm.md"),
    (f'It was faster in [one run](../../evidence/gpu/ops.heads.jsonl "{RUN}").', f"run:{RUN}"),
    ("See [this page](a-page.md).", ""),
]


@pytest.mark.parametrize(("text", "evidence"), GOOD)
def test_a_page_with_evidence_has_no_problem(made: MadeWiki, text: str, evidence: str) -> None:
    assert made.problems(text, evidence) == []


RESULT = "docs/results/norm.md"
BAD = {
    "no evidence": ("It is faster.", "", "no evidence"),
    "bare figure": ("It takes 5 us.", "", "is not quoted"),
    "stale figure": ('[9 us](../results/norm.md#device "s195 | compile | ours")', RESULT, "is 2.29 us now"),
    "missing row": ('[9 us](../results/norm.md#device "s7 | compile | ours")', RESULT, "no cell"),
    "missing part": ('[9 us](../results/norm.md#device "s19 | eager | ours")', RESULT, "no part"),
    "ambiguous": ('[2](../results/norm.md#summary "norm | rows")', "docs/results/norm.md", "2 cell"),
    "unnamed cell": ("[2.29 us](../results/norm.md#device)", "docs/results/norm.md", "name the cell"),
    "broken link": ("See [there](nowhere.md).", "", "broken link"),
    "broken anchor": ("See [there](../results/norm.md#nowhere).", "", "no such section"),
    "outside": ("See [there](../../../../etc/hosts).", "", "broken link"),
    "typed page": ("It takes [5 us](../plain.md).", "", "is no record"),
    "comparison with a typed page": ("It is [faster](../plain.md).", "", "no evidence"),
    "unknown source": ("It is [faster](https://example.org/blog).", "", "is not in sources.toml"),
    "missing run": ('It was [faster](../../evidence/gpu/ops.heads.jsonl "2026").', "", "the run 2026 is not in"),
    "run that is gone": ("Nothing.", "run:20200101T000000000000Z-00000000", "is not in evidence/"),
    "unlisted": ('[2.29 us](../results/norm.md#device "s195 | compile | ours")', "", "not listed"),
    "unused": ("Nothing.", "docs/results/norm.md", "listed but not linked"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_a_problem_is_found(made: MadeWiki, case: str) -> None:
    text, evidence, words = BAD[case]
    assert any(words in problem for problem in made.problems(text, evidence))


@pytest.mark.parametrize("facts", [{"bottleneck": "speed"}, {"arch": "hopper"}, {"ops": "gemm"}])
def test_front_matter_uses_the_words_of_the_tools(made: MadeWiki, facts: dict[str, str]) -> None:
    assert len(made.problems("Nothing.", **facts)) == 1


def test_a_source_needs_a_version_and_a_date(made: MadeWiki) -> None:
    page = "It is [faster](https://example.org/guide)."
    sources = made.root / "docs/wiki/sources.toml"
    sources.write_text(SOURCES)
    assert made.problems(page, "source:guide") == []
    assert made.problems("Nothing.") == ["no page uses the source guide"]
    for line in ('version = "1"\n', 'date = "2026-01"\n'):
        sources.write_text(SOURCES.replace(line, ""))
        with pytest.raises(BadFile, match="guide"):
            made.problems(page, "source:guide")


def test_update_writes_the_present_figures(made: MadeWiki) -> None:
    link = '[{}](../results/norm.md#device "s195 | compile | {}")'
    text = f"It takes {link.format('9.99 us', 'ours')}, which is {link.format('7.00x', 'ratio')}."
    assert len(made.problems(text, "docs/results/norm.md")) == 2
    check = made.check
    check.problems()
    assert update_figures(check) == 2
    assert "[2.29 us]" in (page := (made.root / "docs/wiki/a-page.md").read_text()) and "[1.40x]" in page
    assert made.check.problems() == []


@pytest.mark.parametrize(
    ("anchor", "title", "value"),
    [
        ("device", "s195 | compile | theirs", "3.24"),
        ("device", "s19 | compile | ratio", "0.94x"),
        ("times", "s19 | eager: device / stream / wall | wall", "129.5"),
        ("times", "s19 | compile | ratio", "3.36x"),
        ("summary", "norm, compile | rows", "2"),
    ],
)
def test_a_cell_is_found_by_row_and_column(made: MadeWiki, anchor: str, title: str, value: str) -> None:
    assert quoted_cell(made.root / "docs/results/norm.md", anchor, title) == value


def test_a_wrong_front_matter_names_file_and_field(made: MadeWiki) -> None:
    path = made.root / "docs/wiki/a-page.md"
    good = PAGE.format(text="Text.", evidence="", bottleneck="issue", arch="all", ops="any")
    for bad in (good.replace("topic: a topic\n", ""), good.replace("[issue]", "issue"), good.replace("---", "", 2)):
        path.write_text(bad)
        with pytest.raises(BadFile, match=r"a-page\.md"):
            _ = Wiki(path.parent).pages
    with pytest.raises(KernwrightError):
        Wiki(path.parent / "none").page("a-page")
