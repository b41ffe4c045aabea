"""Ranking: the index gives the scores of the formula, computed without an index."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from kernwright.wiki.page import read_page
from kernwright.wiki.ranking import (
    HEADING_WEIGHT,
    LENGTH_SHARE,
    SATURATION,
    TEXT_WEIGHT,
    TITLE_WEIGHT,
    TOPIC_WEIGHT,
    SearchIndex,
)
from kernwright.wiki.vocabulary import terms

TEXTS = {
    "barriers": ("Barriers", "waiting of warps", "Warps wait.\n\n## Shuffles\n\nA shuffle needs no barrier."),
    "loads": ("Loads", "memory access", "A load of 16 bytes.\n\n## Stores\n\nA store has no latency. Loads wait."),
    "graphs": ("Graphs", "replay", "A graph has kernels and no host, and nothing to wait for. " * 5),
}  # fmt: skip


@pytest.fixture
def pages(tmp_path: Path) -> list:  # type: ignore[type-arg]
    for name, (title, topic, text) in TEXTS.items():
        front = f"title: {title}\ntopic: {topic}\nbottleneck: []\narchitectures: [all]\nops: [any]\nevidence: []"
        (tmp_path / f"{name}.md").write_text(f"---\n{front}\n---\n{text}\n")
    return [read_page(path) for path in sorted(tmp_path.glob("*.md"))]


def naive(pages: list, query: str) -> dict[str, float]:  # type: ignore[type-arg]
    def weight(page, term: str) -> float:  # type: ignore[no-untyped-def]
        parts = [(page.title, TITLE_WEIGHT), (f"{page.topic} {page.name}", TOPIC_WEIGHT)]
        for section in page.sections:
            parts += [(section.heading, HEADING_WEIGHT), (section.text, TEXT_WEIGHT)]
        return sum(terms(text).count(term) * factor for text, factor in parts)

    every = {term for page in pages for part in (page.title, page.topic, page.name, page.body) for term in terms(part)}
    lengths = {page.name: sum(weight(page, term) for term in every) for page in pages}
    mean = sum(lengths.values()) / len(pages)
    scores = {}
    for page in pages:
        total = 0.0
        for term in terms(query):
            having = sum(weight(each, term) > 0 for each in pages)
            rarity = math.log(1 + (len(pages) - having + 0.5) / (having + 0.5))
            own = weight(page, term)
            norm = SATURATION * (1 - LENGTH_SHARE + LENGTH_SHARE * lengths[page.name] / mean)
            total += rarity * own * (SATURATION + 1) / (own + norm)
        scores[page.name] = total
    return scores


@pytest.mark.parametrize("query", ["barrier of warps", "loads wait", "host", "store latency", "shuffle shuffle"])
def test_scores_are_those_of_the_formula(pages: list, query: str) -> None:  # type: ignore[type-arg]
    expected = {name: score for name, score in naive(pages, query).items() if score > 0}
    found = {hit.page.name: hit.score for hit in SearchIndex(pages).search(query, 10)}
    assert found == pytest.approx(expected)
    assert list(found) == sorted(expected, key=lambda name: -expected[name])


def test_the_section_is_the_one_with_the_words(pages: list) -> None:  # type: ignore[type-arg]
    index = SearchIndex(pages)
    assert index.search("shuffle", 1)[0].section.heading == "Shuffles"
    assert index.search("store latency", 1)[0].section.heading == "Stores"
    assert index.search("nothing of this kind", 5)[-1].page.name == "graphs"
    assert index.search("zebra", 5) == []
