"""Pair: one contender against one baseline, by the names that their sides have in a judgement.

A judgement of several pairs runs each contestant once, however many pairs it stands in: a baseline and its twin, and a
contender. So there may be several sides of each role, and a pair says which are its own.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from kernwright.judge.record.sample import Role

CALLED: dict[Role, str] = {"baseline": "the baseline", "again": "the baseline's twin", "candidate": "the candidate"}
SideName = str  # its role, and a number where it is not the first of its role


@dataclass(frozen=True)
class Pair:
    """Whose blocks are held against whose."""

    baseline: SideName = "baseline"
    again: SideName = "again"
    candidate: SideName = "candidate"

    @property
    def baselines(self) -> tuple[SideName, SideName]:
        return self.baseline, self.again

    @property
    def roles(self) -> dict[SideName, Role]:
        return {self.baseline: "baseline", self.again: "again", self.candidate: "candidate"}


def pairs_of(matches: Sequence[tuple[Hashable, Hashable]]) -> list[Pair]:
    """Of baselines and contenders by whatever tells them apart: equal ones share their sides. One that stands in both
    places has sides of each, since what is judged is never what it is judged by."""
    baselines, contenders = (list(dict.fromkeys(column)) for column in zip(*matches, strict=True))
    return [
        Pair(
            _numbered("baseline", baselines.index(baseline)),
            _numbered("again", baselines.index(baseline)),
            _numbered("candidate", contenders.index(contender)),
        )
        for baseline, contender in matches
    ]


def _numbered(role: Role, number: int) -> SideName:
    return f"{role}-{number + 1}" if number else role


def sides_of(pairs: Iterable[Pair]) -> list[SideName]:
    """Each side once: baselines and their twins first."""
    known = list(pairs)
    return [*dict.fromkeys(side for pair in known for side in pair.baselines), *contenders_of(known)]


def contenders_of(pairs: Iterable[Pair]) -> list[SideName]:
    """Each once."""
    return list(dict.fromkeys(pair.candidate for pair in pairs))
