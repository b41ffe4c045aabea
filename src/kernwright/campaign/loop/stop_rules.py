"""Stop rules: when a campaign may not continue, and why. All rules are pure functions of the history."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kernwright.campaign.history import History, Iteration
from kernwright.campaign.record import direction_tag
from kernwright.campaign.settings import Budget
from kernwright.campaign.state.standing import ideas, standing_of, target_of, usage_of

MOST_IN_VAIN = 3  # iterations in a row without improvement, after which the next one must meet conditions

RuleName = Literal["target", "iterations", "minutes", "cost", "profile", "reread", "direction"]
FINAL: frozenset[RuleName] = frozenset({"target", "iterations", "minutes", "cost"})  # nothing lifts them


@dataclass(frozen=True)
class Refusal:
    """A rule that forbids the next iteration, the reason, and the remedy."""

    rule: RuleName
    why: str
    remedy: str

    @property
    def is_final(self) -> bool:
        return self.rule in FINAL


def refusals(history: History, limits: Budget | None = None, direction: str | None = None) -> list[Refusal]:
    """Return the rules that forbid another iteration now; final ones first.

    Args:
        limits: limits in addition to the campaign's own budget.
        direction: direction of the next idea, if it is known.
    """
    budgets = [history.started.settings.budget] if history.started else []
    found = [*_target(history)]
    for budget in [*budgets, *([limits] if limits else [])]:
        found += _budget(history, budget)
    return [*dict.fromkeys(found), *_in_vain(history, direction)]


def avoided_directions(history: History) -> tuple[str, ...]:
    """Return the directions that the next idea may not have: those of the last three, if none improved."""
    if (streak := _streak(history)) is None:
        return ()
    return tuple(dict.fromkeys(direction_tag(each.idea.direction) for each in streak if each.idea))


def _target(history: History) -> list[Refusal]:
    target, best = target_of(history), standing_of(history)
    if target is None or history.best is None or best.ratio < target:
        return []
    why = f"the target is reached: iteration {best.iteration} has {best.ratio:.3f}x, and the limit is {target:.3f}x"
    return [Refusal("target", why, "review the version and promote it, or start a campaign with a higher --target")]


def _budget(history: History, budget: Budget) -> list[Refusal]:
    used, found = usage_of(history), []
    larger = "give a larger limit, or start a new campaign from the best version with --from"
    if budget.iterations is not None and used.iterations >= budget.iterations:
        found.append(Refusal("iterations", f"all {budget.iterations} iteration(s) of the budget are used", larger))
    if budget.minutes is not None and used.minutes >= budget.minutes:
        why = f"{used.minutes:.1f} of {budget.minutes:g} minute(s) of the budget are used"
        found.append(Refusal("minutes", why, larger))
    if budget.cost_usd is not None and used.cost_usd >= budget.cost_usd:
        why = f"{used.cost_usd:.2f} of {budget.cost_usd:g} USD of the budget are used"
        found.append(Refusal("cost", why, larger))
    return found


def _in_vain(history: History, direction: str | None) -> list[Refusal]:
    """Return the conditions after three iterations in a row without improvement that are not met."""
    if (streak := _streak(history)) is None:
        return []
    last, found = streak[-1].number, []
    since = f"the last {MOST_IN_VAIN} iterations brought no improvement"
    if not any(profile.after_iteration >= last for profile in history.profiles):
        why = f"{since}, and no profile was taken since iteration {last}"
        found.append(Refusal("profile", why, "kernwright campaign profile"))
    if not any(reread.after_iteration >= last for reread in history.rereads):
        why = f"{since}, and the ledger was not read again since iteration {last}"
        found.append(Refusal("reread", why, "kernwright campaign reread"))
    avoided = avoided_directions(history)
    if direction is not None and direction_tag(direction) in avoided:
        why = f"{since}, and direction {direction!r} is one of theirs: {', '.join(avoided)}"
        found.append(Refusal("direction", why, "try another direction"))
    return found


def _streak(history: History) -> list[Iteration] | None:
    """Return the last three iterations if they ended without improvement; otherwise None."""
    last = [each for each in ideas(history) if each.ended][-MOST_IN_VAIN:]
    in_vain = len(last) == MOST_IN_VAIN and not any(each.ended and each.ended.improved for each in last)
    return last if in_vain else None
