"""Ranking: pages and sections for a query, by BM25 over weighted fields."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from kernwright.wiki.page import WikiPage, WikiSection
from kernwright.wiki.vocabulary import terms

TITLE_WEIGHT, TOPIC_WEIGHT, HEADING_WEIGHT, TEXT_WEIGHT = 5.0, 4.0, 2.0, 1.0
SATURATION = 2.0  # BM25's k1: a larger value gives repeated terms more weight
LENGTH_SHARE = 0.6  # BM25's b: a larger value gives long pages less weight


@dataclass(frozen=True)
class SearchHit:
    """A page that a search found, with the section that fits best."""

    page: WikiPage
    section: WikiSection
    score: float


class SearchIndex:
    """The weighted terms of all pages."""

    def __init__(self, pages: Sequence[WikiPage]) -> None:
        self._pages = pages
        self._weights = [_weighted(page) for page in pages]
        self._sections = [[Counter(terms(f"{each.heading} {each.text}")) for each in page.sections] for page in pages]
        self._lengths = [sum(weights.values()) for weights in self._weights]
        self._mean_length = sum(self._lengths) / max(1, len(pages))
        self._frequency = Counter(term for weights in self._weights for term in weights)

    def search(self, words: str, limit: int) -> list[SearchHit]:
        """Return the pages that have at least one of the words, the best first."""
        asked = Counter(terms(words))
        scored = [(self._score(number, asked), number) for number in range(len(self._pages))]
        best = sorted((each for each in scored if each[0] > 0), key=lambda each: (-each[0], each[1]))[:limit]
        return [SearchHit(self._pages[number], self._section(number, asked), score) for score, number in best]

    def _score(self, number: int, asked: Counter[str]) -> float:
        weights, length = self._weights[number], self._lengths[number]
        norm = SATURATION * (1 - LENGTH_SHARE + LENGTH_SHARE * length / (self._mean_length or 1.0))
        return sum(
            count * self._rarity(term) * weights[term] * (SATURATION + 1) / (weights[term] + norm)
            for term, count in asked.items()
            if weights[term]
        )

    def _section(self, number: int, asked: Counter[str]) -> WikiSection:
        sections, counts = self._pages[number].sections, self._sections[number]
        scores = [sum(self._rarity(term) * math.sqrt(own[term]) for term in asked) for own in counts]
        return sections[max(range(len(sections)), key=lambda each: (scores[each], -each))]

    def _rarity(self, term: str) -> float:
        """Return BM25's inverse document frequency."""
        having = self._frequency[term]
        return math.log(1 + (len(self._pages) - having + 0.5) / (having + 0.5))


def _weighted(page: WikiPage) -> Counter[str]:
    found: Counter[str] = Counter()
    facts = " ".join((page.topic, page.name, *page.bottlenecks))
    fields = [(page.title, TITLE_WEIGHT), (facts, TOPIC_WEIGHT)]
    fields += [(section.heading, HEADING_WEIGHT) for section in page.sections]
    fields += [(section.text, TEXT_WEIGHT) for section in page.sections]
    for text, weight in fields:
        for term in terms(text):
            found[term] += weight  # type: ignore[assignment]
    return found
