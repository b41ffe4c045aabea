"""CampaignStatus: the state of a campaign, what is refused and why, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

from kernwright.campaign.agents.agent import HUMAN
from kernwright.campaign.campaign import Campaign
from kernwright.campaign.history import History, Iteration
from kernwright.campaign.loop.stop_rules import Refusal, avoided_directions, refusals
from kernwright.campaign.record import CampaignEnded, IterationEnded, LedgerReread, ProfileTaken
from kernwright.campaign.state.standing import StandingVersion, Usage, standing_of, target_of, usage_of

Stage = Literal["prepared", "waiting", "editing", "judging", "refused", "ended"]


@dataclass(frozen=True, kw_only=True)
class CampaignStatus:
    """The state of a campaign on one screen.

    Attributes:
        stage: prepared (no baseline yet), waiting for an idea, editing, judging, refused by a stop rule, or ended.
        is_running: whether a process works on the campaign now.
        interval: of the best version's ratio; None if no version was better than the starting version.
    """

    campaign: Campaign
    stage: Stage
    is_running: bool
    standing: StandingVersion
    interval: tuple[float, float] | None
    target: float | None
    usage: Usage
    open_iteration: int | None
    refusals: tuple[Refusal, ...]
    avoid: tuple[str, ...]
    end: str | None
    next_command: str

    @classmethod
    def of(cls, campaign: Campaign, history: History, is_running: bool) -> CampaignStatus:
        found = tuple(refusals(history))
        interrupted = history.open_iteration
        end = _end(history)
        stage = _stage(history, interrupted, found, end)
        best = history.best.ended if history.best else None
        return cls(
            campaign=campaign,
            stage=stage,
            is_running=is_running,
            standing=standing_of(history),
            interval=best.interval if best else None,
            target=target_of(history),
            usage=usage_of(history),
            open_iteration=interrupted.number if interrupted else None,
            refusals=found,
            avoid=avoided_directions(history),
            end=end,
            next_command=_next(campaign, stage, found, history.best is not None),
        )

    def lines(self) -> Iterator[str]:
        """Yield the status as text."""
        own = self.campaign.settings
        running = " (a process works on it)" if self.is_running else ""
        yield f"campaign {own.name}: {own.op} on {own.device} against {own.baseline}, {own.metric}; agent {own.agent}"
        yield f"  state    {self._state()}{running}"
        yield f"  best     {self._best()}"
        yield f"  used     {self._used()}"
        for each in self.refusals:
            yield f"  refused  {each.why}"
        if self.avoid:
            yield f"  avoid    {', '.join(self.avoid)}"
        yield f"  edit     {self.campaign.solution}"
        if self.campaign.page.exists():  # the first record writes it
            yield f"  page     {self.campaign.page}"
        yield f"  next     {self.next_command}"

    def as_json(self) -> dict[str, Any]:
        own = self.campaign.settings
        return {
            "campaign": own.name,
            "settings": own.model_dump(mode="json"),
            "stage": self.stage,
            "is_running": self.is_running,
            "best": asdict(self.standing) | {"interval": self.interval},
            "target_ratio": self.target,
            "used": asdict(self.usage),
            "open_iteration": self.open_iteration,
            "refused": [asdict(each) for each in self.refusals],
            "avoid_directions": list(self.avoid),
            "end": self.end,
            "folder": str(self.campaign.agent_folder),
            "page": str(self.campaign.page),
            "next": self.next_command,
        }

    def _state(self) -> str:
        number = self.open_iteration
        return {
            "prepared": "prepared; the baseline is not measured yet",
            "waiting": "waiting for an idea",
            "editing": f"iteration {number} is being edited",
            "judging": f"iteration {number} is edited and not judged yet",
            "refused": "the next iteration is refused",
            "ended": f"ended: {self.end or '; '.join(each.why for each in self.refusals)}",
        }[self.stage]

    def _best(self) -> str:
        limit = f"; the bandwidth limit is {self.target:.3f}x" if self.target else ""
        if self.standing.iteration is None:
            return f"no version is better than the starting version{limit}"
        interval = f" ({self.interval[0]:.3f} to {self.interval[1]:.3f})" if self.interval else ""
        return f"iteration {self.standing.iteration}: {self.standing.ratio:.3f}x{interval}{limit}"

    def _used(self) -> str:
        budget = self.campaign.settings.budget
        limits = [
            f" of {limit:g}" if limit is not None else ""
            for limit in (budget.iterations, budget.minutes, budget.cost_usd)
        ]
        used = self.usage
        return (
            f"{used.iterations}{limits[0]} iteration(s), {used.minutes:.1f}{limits[1]} minute(s), "
            f"{used.cost_usd:.2f}{limits[2]} USD"
        )


def _end(history: History) -> str | None:
    """Return the reason of the campaign's end; None if an iteration, a profile or a reading followed."""
    for entry in reversed(history.entries):
        if isinstance(entry.body, CampaignEnded):
            return entry.body.reason
        if isinstance(entry.body, (IterationEnded, ProfileTaken, LedgerReread)):
            return None
    return None


def _stage(history: History, interrupted: Iteration | None, found: tuple[Refusal, ...], end: str | None) -> Stage:
    if interrupted is not None:
        return "judging" if interrupted.edited else "editing"
    if history.baseline is None:
        return "prepared"
    if end is not None or any(each.is_final for each in found):
        return "ended"
    return "refused" if found else "waiting"


def _next(campaign: Campaign, stage: Stage, found: tuple[Refusal, ...], has_best: bool) -> str:
    name, agent = campaign.name, campaign.settings.agent
    if stage == "ended" and has_best:
        return f"kernwright campaign review {name}"
    if stage == "ended" and any(each.is_final for each in found):
        return found[0].remedy
    if stage == "refused":
        return f"{found[0].remedy} {name}" if found[0].remedy.startswith("kernwright ") else found[0].remedy
    if agent == HUMAN:
        return f"edit solution/, then: kernwright campaign step {name} --hypothesis TEXT --direction TAG"
    return f"kernwright campaign run {name} --iterations N"
