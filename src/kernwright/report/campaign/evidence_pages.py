"""Pages of recorded campaigns in docs/campaigns: one with trajectory and verdicts for each campaign, and their list."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from kernwright.campaign.files.iterations_file import interval_text, outcome_text, ratio_text
from kernwright.campaign.history import Iteration
from kernwright.campaign.state.standing import standing_of, target_of
from kernwright.report.campaign.plot import trajectory_plot
from kernwright.report.campaign.recorded_campaign import EVIDENCE, RecordedCampaign, result_of
from kernwright.report.markdown import ABSENT, escaped, image, table, time_text

FOLDER = "campaigns"  # below docs/
COMMAND = "kernwright wiki check --update"
CHECKS = ("ledger verify", "ledger recompute")
LIST_READING = f"""\
[Campaigns](../campaign.md) whose records are committed. Ideas that brought no improvement are collected by family in
the [wiki](../wiki/README.md#what-did-not-work). `kernwright ledger pack` writes the records of a campaign to an archive
in `{EVIDENCE.as_posix()}`; then the command above writes its pages."""
READING = """\
*Over the baseline* is the speedup of a version, and *verdict* is the outcome of this comparison. *Over the best* is its
speedup divided by that of the best version at that time, and *result* is the outcome of this second comparison. A
version is called *slower* only if the intervals of both versions do not overlap and the difference is larger than the
noise band. *Outcome* says whether the version was kept."""


def campaign_files(campaigns: Sequence[RecordedCampaign], docs: Path) -> dict[Path, str]:
    """Return the text of every page and plot in docs/campaigns, by path."""
    folder = docs / FOLDER
    files = {folder / "README.md": _text(_list_page(campaigns))}
    for campaign in campaigns:
        files[folder / f"{campaign.name}.md"] = _text(_page(campaign))
        files[folder / f"{campaign.name}.svg"] = trajectory_plot(campaign.history, "trajectory", standalone=True)
    return files


def _text(lines: Iterator[str]) -> str:
    return "\n".join(lines) + "\n"


def _list_page(campaigns: Sequence[RecordedCampaign]) -> Iterator[str]:
    yield "# Recorded campaigns"
    yield ""
    yield f"Generated from `{EVIDENCE.as_posix()}` by `{COMMAND}`; no number is typed."
    yield ""
    yield LIST_READING
    yield ""
    head = ("campaign", "op", "device", "agent", "metric", "baseline", "ideas", "improved", "start", "best version")
    yield from table(head, [_list_row(each) for each in campaigns], numbers=4)


def _list_row(campaign: RecordedCampaign) -> list[str]:
    own, history = campaign.settings, campaign.history
    ideas = [each for each in history.iterations if each.started.agent != "start"]
    start = next((each.ended.ratio for each in history.iterations if each.started.agent == "start" and each.ended), 1.0)
    improved = sum(bool(each.ended and each.ended.improved) for each in ideas)
    name = f"[{campaign.name}]({campaign.name}.md)"
    return [
        name, f"`{own.op}`", campaign.device, escaped(own.agent), own.metric, own.baseline, str(len(ideas)),
        str(improved), ratio_text(start), ratio_text(standing_of(history).ratio),
    ]  # fmt: skip


def _page(campaign: RecordedCampaign) -> Iterator[str]:
    own, history = campaign.settings, campaign.history
    yield f"# Campaign {campaign.name}"
    yield ""
    yield f"Generated from `{EVIDENCE.as_posix()}` by `{COMMAND}`; no number is typed."
    yield ""
    yield f"- op: `{own.op}` of task `{campaign.task}`, in {own.language}; agent: {escaped(own.agent)}"
    yield f"- rows: {f'`{own.rows}`' if own.rows else 'the usual rows of the task'}"
    yield f"- baseline: `{own.baseline}`; metric: `{own.metric}`; started from commit `{own.base_commit[:12]}`"
    yield from (f"- {escaped(machine)}" for machine in campaign.machines)
    if (target := target_of(history)) is not None:
        kind = "goal of the campaign" if own.target_ratio is not None else "bandwidth limit of the rows"
        yield f"- {kind}: {target:.3f}x over the baseline"
    if history.end:
        yield f"- end: {escaped(history.end.reason)}"
    yield from image("speedup of each iteration over the baseline, with its interval", f"{campaign.name}.svg")
    yield ""
    yield "## Iterations"
    yield ""
    yield READING
    yield ""
    head = (
        "iteration", "direction", "predicted", "over the best", "over the baseline", "interval", "noise", "verdict",
        "result", "outcome", "run",
    )  # fmt: skip
    yield from table(head, [_iteration_row(campaign, each) for each in history.iterations])
    yield ""
    yield "## Ideas"
    yield ""
    for each in history.iterations:
        yield f"{each.number}. {escaped(each.idea.hypothesis if each.idea else '(none given)')}"
    yield ""
    yield "## Rows"
    yield ""
    yield f"Times of a call in microseconds, `{own.metric}`. *Copy* is a plain copy of the same bytes."
    yield ""
    yield from table(("row", "baseline", "best version", "ratio", "copy"), _rows(campaign), numbers=4)
    yield ""
    yield "## Check"
    yield ""
    yield "```"
    yield from (f"kernwright {words} --ledger {EVIDENCE.as_posix()}" for words in CHECKS)
    yield "```"


def _iteration_row(campaign: RecordedCampaign, iteration: Iteration) -> list[str]:
    idea, ended = iteration.idea, iteration.ended
    run = (ended.confirmed_run or ended.verdict_run) if ended else None
    return [
        str(iteration.number),
        escaped(idea.direction) if idea else "unknown",
        ratio_text(idea.predicted_ratio if idea else None) or ABSENT,
        ratio_text(ended.against_best if ended else None) or ABSENT,
        ratio_text(ended.ratio if ended else None) or ABSENT,
        (interval_text(ended) if ended else "") or ABSENT,
        f"{ended.noise_band:.1%}" if ended and ended.noise_band is not None else ABSENT,
        (ended.verdict or "none") if ended else "none",
        result_of(campaign.history, iteration),
        outcome_text(iteration),
        f"`{run}`" if run else ABSENT,
    ]


def _rows(campaign: RecordedCampaign) -> Iterator[list[str]]:
    history = campaign.history
    best = {row.id: row for row in history.best.ended.rows} if history.best and history.best.ended else {}
    for row in history.baseline.rows if history.baseline else ():
        own = best.get(row.id)
        times = (own.baseline_us if own else row.baseline_us, own.candidate_us if own else None)
        cells = [time_text(time) if time is not None else ABSENT for time in times]
        ratio = ratio_text(own.ratio if own else None) or ABSENT
        copy = (own or row).copy_us
        yield [f"`{row.id}`", *cells, ratio, time_text(copy) if copy is not None else ABSENT]
