"""Histories of campaigns with given outcomes, for tests of rules and pages. No such campaign was run."""

from __future__ import annotations

from pathlib import Path

from kernwright.campaign.history import History, HistoryEntry
from kernwright.campaign.record import (
    BaselineMeasured,
    Bottleneck,
    CampaignBody,
    CampaignStarted,
    Idea,
    IterationEdited,
    IterationEnded,
    IterationStarted,
    LedgerReread,
    ProfileTaken,
    RowFigure,
)
from kernwright.campaign.settings import Budget, CampaignSettings

NAME = "made"


def settings_of(
    folder: Path = Path("/nowhere"), budget: Budget | None = None, target: float | None = None
) -> CampaignSettings:
    return CampaignSettings(
        name=NAME, task=str(folder / "task"), task_digest="t", op="twice", baseline_digest="b", metric="stream",
        language="python", agent="human", budget=budget or Budget(), target_ratio=target, repository=folder,
        base_commit="0" * 40, ledger=folder / "ledger",
    )  # fmt: skip


def started(budget: Budget | None = None, target: float | None = None) -> CampaignStarted:
    return CampaignStarted(campaign=NAME, settings=settings_of(budget=budget, target=target))


def baseline(*times: tuple[float, float | None, float | None]) -> BaselineMeasured:
    """Return a baseline with a row for each time, time of a copy and least time."""
    rows = [
        RowFigure(id=f"r{number}", baseline_us=time, copy_us=copy, least_us=least)
        for number, (time, copy, least) in enumerate(times)
    ]
    bottleneck = Bottleneck(row="r0", unavailable="no GPU")
    return BaselineMeasured(campaign=NAME, verdict_run="run-0", rows=tuple(rows), bottleneck=bottleneck)


def iteration(
    number: int, ratio: float | None, improved: bool = False, direction: str = "loads", agent: str = "human",
    seconds: float = 30.0, cost: float | None = None, hypothesis: str = "an idea", verdict: str | None = None,
) -> list[CampaignBody]:  # fmt: skip
    """Return the records of one iteration; with a ratio it was timed."""
    idea = Idea(hypothesis=hypothesis, direction=direction, predicted_ratio=1.5)
    parent = f"{number - 1:040x}"
    return [
        IterationStarted(campaign=NAME, number=number, agent=agent, parent_commit=parent, idea=idea),
        IterationEdited(
            campaign=NAME, number=number, ending="finished", idea=idea, commit=f"{number:040x}",
            candidate_digest=f"digest-{number}", seconds=seconds, cost_usd=cost,
        ),
        IterationEnded(
            campaign=NAME, number=number, verdict_run=f"run-{number}", ratio=ratio,
            verdict=verdict or ("faster" if improved else "same" if ratio else "incorrect"),  # type: ignore[arg-type]
            interval=(ratio * 0.9, ratio * 1.1) if ratio else None, noise_band=0.05, improved=improved,
            kept=improved or agent == "start", seconds=seconds, against_best=ratio,
        ),
    ]  # fmt: skip


def profile(after: int) -> ProfileTaken:
    bottleneck = Bottleneck(row="r0", bound="bandwidth", summary="DRAM at 91%", counters={"dram__bytes.sum": 1e6})
    return ProfileTaken(campaign=NAME, after_iteration=after, commit="c", bottleneck=bottleneck)


def reread(after: int) -> LedgerReread:
    return LedgerReread(campaign=NAME, after_iteration=after, head="h", summary="all read")


def history_of(*bodies: CampaignBody | list[CampaignBody]) -> History:
    flat = [body for each in bodies for body in (each if isinstance(each, list) else [each])]
    return History(
        [HistoryEntry(run="run", seq=number, time="", hash=str(number), body=body) for number, body in enumerate(flat)]
    )
