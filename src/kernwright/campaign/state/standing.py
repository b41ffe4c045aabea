"""StandingVersion: the version that the next idea is compared with, and the figures of the whole campaign."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kernwright.campaign.history import History, Iteration
from kernwright.campaign.record import BaselineMeasured

START = "start"  # agent and direction of the iteration that judges a given starting version
CORRECT = frozenset({"faster", "same", "slower"})


@dataclass(frozen=True)
class StandingVersion:
    """The version that an edit must improve on.

    Attributes:
        iteration: its number; None for the version that the campaign began with, if that was not judged.
        commit: a commit that has it; None if nothing was edited yet.
        ratio: speedup over the baseline; 1 for a starting version that was not judged.
    """

    iteration: int | None
    commit: str | None
    ratio: float


def standing_of(history: History, before: int | None = None) -> StandingVersion:
    """Return the best version; before the first improvement, the starting version.

    Args:
        before: count only iterations with a smaller number.
    """
    done = [each for each in history.iterations if each.ended and (before is None or each.number < before)]
    for each in reversed(done):
        if each.ended and each.ended.improved and each.ended.ratio is not None and each.edited:
            return StandingVersion(each.number, each.edited.commit, each.ended.ratio)
    first = next(iter(history.iterations), None)
    if first is None:
        return StandingVersion(None, None, 1.0)
    judged = first.ended if first in done and first.started.agent == START else None
    if judged and judged.verdict in CORRECT and judged.ratio is not None:
        return StandingVersion(first.number, first.started.parent_commit, judged.ratio)
    return StandingVersion(None, first.started.parent_commit, 1.0)


def ideas(history: History) -> list[Iteration]:
    """Return the iterations without the one that judges the starting version."""
    return [each for each in history.iterations if each.started.agent != START]


def target_of(history: History) -> float | None:
    """Return the speedup at the bandwidth limit: given at the start, else from the baseline's rows; None if unknown.

    The limit of a row is the time of the fastest plain copy of its bytes, measured in the same run; on a machine where
    no copy was measured, the least time that the memory's bandwidth allows.
    """
    if history.started and history.started.settings.target_ratio is not None:
        return history.started.settings.target_ratio
    return bandwidth_limit(history.baseline) if history.baseline else None


def bandwidth_limit(baseline: BaselineMeasured) -> float | None:
    """Return the geometric mean over the rows of the baseline's time divided by that of the limit."""
    logs = []
    for row in baseline.rows:
        limit = row.copy_us or row.least_us
        if not row.baseline_us or not limit:
            return None
        logs.append(math.log(row.baseline_us / limit))
    return math.exp(sum(logs) / len(logs)) if logs else None


@dataclass(frozen=True)
class Usage:
    """The part of the budget that a campaign has used."""

    iterations: int
    minutes: float
    cost_usd: float


def usage_of(history: History) -> Usage:
    """Return the iterations that have ended, and the time and cost of all agents and judgements."""
    edited = [each.edited for each in history.iterations if each.edited]
    ended = [each.ended for each in history.iterations if each.ended]
    return Usage(
        iterations=sum(each.ended is not None for each in ideas(history)),
        minutes=(sum(each.seconds for each in edited) + sum(each.seconds for each in ended)) / 60,
        cost_usd=sum(each.cost_usd or 0.0 for each in edited),
    )
