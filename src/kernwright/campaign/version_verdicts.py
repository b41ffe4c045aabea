"""The verdicts on one version of a candidate that count as evidence for its campaign."""

from __future__ import annotations

from collections.abc import Iterator

from kernwright.campaign.campaign import Campaign
from kernwright.campaign.history import History
from kernwright.campaign.record import IterationEnded, VersionJudged
from kernwright.judge.record.recorded import recorded_bodies
from kernwright.judge.record.verdict import Headline, MetricResult, RowVerdict, Verdict


def verdicts_on(campaign: Campaign, history: History, digest: str) -> list[Verdict]:
    """Return the verdicts on a version, oldest first.

    A verdict counts if a record of the campaign names its run, if it is evidence, and if task, baseline, metric and
    device are those of the campaign.
    """
    runs = set(_named_runs(history))
    known = [run for run in campaign.ledger.runs() if run in runs] if campaign.ledger.exists else []
    found = (body.verdict() for body in recorded_bodies(campaign.ledger, runs=known))
    return [verdict for verdict in found if verdict.candidate_digest == digest and counts_for(campaign, verdict)]


def _named_runs(history: History) -> Iterator[str]:
    for ended in history.all(IterationEnded):
        yield from (run for run in (ended.verdict_run, ended.confirmed_run) if run)
    yield from (judged.verdict_run for judged in history.all(VersionJudged))


def counts_for(campaign: Campaign, verdict: Verdict) -> bool:
    """Return whether a verdict is evidence on the campaign's task, baseline, metric and device."""
    settings = campaign.settings
    return (
        verdict.evidence
        and not verdict.interrupted
        and verdict.task_digest == settings.task_digest
        and verdict.baseline_digest == settings.baseline_digest
        and verdict.metric == settings.metric
        and str(verdict.provenance.get("device", "")).partition(":")[0] == settings.device.partition(":")[0]
    )


def deciding_headline(verdict: Verdict) -> Headline | None:
    """Return the headline of the deciding metric; None if no row was timed in it."""
    own = verdict.headline.get(verdict.metric)
    return own if isinstance(own, Headline) else None


def deciding_result(verdict: Verdict, row: RowVerdict) -> MetricResult | None:
    """Return a row's result in the deciding metric; None if it was not timed in it."""
    own = row.metrics.get(verdict.metric)
    return own if isinstance(own, MetricResult) else None
