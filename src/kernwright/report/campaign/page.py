"""The page of a campaign as one self-contained HTML file. Text of agents is escaped."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment

from kernwright.campaign.campaign import Campaign
from kernwright.campaign.files.card import bottleneck_text
from kernwright.campaign.files.iterations_file import outcome_text
from kernwright.campaign.history import History, Iteration
from kernwright.campaign.loop.status import CampaignStatus
from kernwright.campaign.record import Bottleneck, RowFigure
from kernwright.campaign.repository import Repository
from kernwright.campaign.state.versions import Versions
from kernwright.core.errors import EnvironmentProblem, KernwrightError
from kernwright.ledger.files import replacing
from kernwright.report.campaign.plot import trajectory_plot
from kernwright.report.html.page_environment import page_environment
from kernwright.report.verdict_plots import SHAPES, interval_text, magnitude

MOST_DIFF = 20_000  # characters of one version's difference
RELOAD_S = 5


@dataclass(frozen=True, kw_only=True)
class KeptVersion:
    """A version that was kept, with its difference to the one before."""

    number: int
    hypothesis: str
    diff: str


@dataclass(frozen=True, kw_only=True)
class CounterSection:
    """The bottleneck that the counters showed at one point of the campaign."""

    title: str
    text: str
    bottleneck: Bottleneck


@dataclass(frozen=True, kw_only=True)
class RowPair:
    """A row with the figures of the baseline and of the best version."""

    baseline: RowFigure
    best: RowFigure | None


def render_campaign(campaign: Campaign, history: History, reloads: bool = False) -> str:
    """Return the page as text.

    Args:
        reloads: the page loads itself again every few seconds, until the campaign has ended.
    """
    status = CampaignStatus.of(campaign, history, is_running=reloads)
    best = history.best.ended if history.best else None
    figures = {row.id: row for row in best.rows} if best else {}
    rows = (
        [RowPair(baseline=row, best=figures.get(row.id)) for row in history.baseline.rows] if history.baseline else []
    )
    return (
        _environment()
        .get_template("campaign/page.html.j2")
        .render(
            title=f"Campaign {campaign.name}",
            settings=campaign.settings,
            status=status,
            lines=list(status.lines()),
            reload=RELOAD_S if reloads and status.stage != "ended" else None,
            plots=[trajectory_plot(history, f"trajectory-{narrow}", narrow=narrow) for narrow in (False, True)],
            iterations=list(reversed(history.iterations)),
            rows=rows,
            counters=_counters(history),
            kept=_kept(campaign, history),
            rereads=history.rereads,
            reviews=history.reviews,
        )
    )


def write_campaign_page(campaign: Campaign, history: History, path: Path, reloads: bool = False) -> None:
    """Write the page to a file. If that fails, the file keeps its former content."""
    page = render_campaign(campaign, history, reloads).encode()
    try:
        with replacing(path) as stream:
            stream.write(page)
    except OSError as error:
        raise EnvironmentProblem(
            f"the page {path} cannot be written: {error.strerror or error}",
            f"make {path.absolute().parent} a writable folder with room for it",
        ) from error


def _counters(history: History) -> list[CounterSection]:
    found = []
    if history.baseline:
        own = history.baseline.bottleneck
        found.append(CounterSection(title="baseline", text=bottleneck_text(own), bottleneck=own))
    for profile in history.profiles:
        title = f"best version after iteration {profile.after_iteration}"
        text = bottleneck_text(profile.bottleneck)
        found.append(CounterSection(title=title, text=text, bottleneck=profile.bottleneck))
    return found


def _kept(campaign: Campaign, history: History) -> list[KeptVersion]:
    """Return the kept versions, the latest first, each with the difference to the version before it."""
    versions = Versions(campaign, Repository(campaign.worktree))
    found: list[KeptVersion] = []
    before: str | None = None
    for each in history.iterations:
        commit = each.edited.commit if each.edited else None
        before = before or each.started.parent_commit
        if each.ended and each.ended.kept and commit is not None:
            hypothesis = each.idea.hypothesis if each.idea else ""
            diff = _diff(versions, before, commit)
            found.append(KeptVersion(number=each.number, hypothesis=hypothesis, diff=diff))
            before = commit
    return found[::-1]


def _diff(versions: Versions, before: str, after: str) -> str:
    try:
        text = versions.diff(before, after)
    except KernwrightError as error:  # the page is of use without it
        return f"not available: {error.cause}"
    return text if len(text) <= MOST_DIFF else f"{text[:MOST_DIFF]}\n... ({len(text) - MOST_DIFF} more characters)"


def _outcome_kind(iteration: Iteration) -> str:
    return (iteration.ended.verdict or "none") if iteration.ended else "none"


def _environment() -> Environment:
    environment = page_environment()
    environment.globals |= {"SHAPES": SHAPES}
    environment.filters |= {"magnitude": magnitude, "interval": interval_text, "outcome": outcome_text}
    environment.filters |= {"kind": _outcome_kind}
    return environment
