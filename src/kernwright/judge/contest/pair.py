"""Pair: one contender against one baseline, by the names of their sides in a judgement.

A judgement of several pairs runs each contestant once, no matter how many pairs it belongs to: a baseline with its
twin, and a contender. So there may be several sides of each role, and a pair names its own.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from kernwright.judge.record.sample import Role as Role
from kernwright.judge.record.sample import SideName as SideName

CALLED: dict[Role, str] = {"baseline": "the baseline", "again": "the baseline's twin", "candidate": "the candidate"}


@dataclass(frozen=True)
class Pair:
    """The three sides of one comparison."""

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
    """Return the pairs of (baseline key, contender key) matches. Equal keys share their sides.

    A contestant in both places has separate sides for each.
    """
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
    """Return each side once, baselines and their twins first."""
    known = list(pairs)
    return [*dict.fromkeys(side for pair in known for side in pair.baselines), *contenders_of(known)]


def contenders_of(pairs: Iterable[Pair]) -> list[SideName]:
    """Return each contender once."""
    return list(dict.fromkeys(pair.candidate for pair in pairs))
