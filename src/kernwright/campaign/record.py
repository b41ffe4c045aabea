"""Records of a campaign in the ledger: one model for each kind.

An iteration has up to three records. `iteration_started` is written before anything is edited. `iteration_edited` has
the idea behind the edit with its predicted effect, and names the commit and the digest of the edited candidate; it is
written before anything is judged. `iteration_ended` has the verdict and what follows from it. A process that is killed
leaves an iteration without its last record; the next process continues it from there.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from kernwright.campaign.settings import CampaignSettings
from kernwright.judge.record.verdict import Outcome

Prediction = Literal["confirmed", "refuted", "undecided"]
AgentEnding = Literal["finished", "no_change", "failed", "timed_out", "over_cost", "tampered"]


class CampaignBody(BaseModel):
    """A record of one campaign."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    kind: ClassVar[str]

    campaign: str


class CampaignStarted(CampaignBody):
    kind: ClassVar[str] = "campaign_started"

    settings: CampaignSettings


class RowFigure(BaseModel):
    """One row of a verdict in the deciding metric, as a campaign's tables show it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    baseline_us: float | None
    candidate_us: float | None = None
    ratio: float | None = None
    copy_us: float | None = Field(default=None, description="time of the fastest plain copy of the same bytes")
    least_us: float | None = Field(default=None, description="the least time that the row's bytes can take")


class Bottleneck(BaseModel):
    """The bottleneck of a kernel, from hardware counters, or the reason why there are none."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    row: str
    bound: str | None = Field(default=None, description="as `kernwright ncu` names it, such as bandwidth")
    summary: str = ""
    counters: dict[str, float] = Field(default_factory=dict)
    unavailable: str | None = Field(default=None, description="why there are no counters, such as no GPU")


class BaselineMeasured(CampaignBody):
    """The judged figures of the baseline before the first iteration."""

    kind: ClassVar[str] = "campaign_baseline"

    verdict_run: str = Field(description="run of the judgement of the baseline against itself")
    rows: tuple[RowFigure, ...]
    bottleneck: Bottleneck


def direction_tag(direction: str) -> str:
    """Return a direction in the form that stop rules compare: lower case, words joined by hyphens."""
    return "-".join("".join(char if char.isalnum() else " " for char in direction.casefold()).split())


class Idea(BaseModel):
    """Why an edit should help, and by how much."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    hypothesis: str = Field(min_length=1)
    direction: str = Field(
        min_length=1, description="tag of the direction, such as vector-width; stop rules compare it"
    )
    predicted_ratio: float | None = Field(
        default=None, gt=0, description="expected speedup over the best version so far; 1.05 is 5 % faster"
    )


class IterationStarted(CampaignBody):
    kind: ClassVar[str] = "iteration_started"

    number: int = Field(ge=1)
    agent: str
    parent_commit: str
    idea: Idea | None = Field(default=None, description="the idea, if it is known before the edit")


class IterationEdited(CampaignBody):
    kind: ClassVar[str] = "iteration_edited"

    number: int = Field(ge=1)
    ending: AgentEnding
    idea: Idea | None = None
    reason: str = Field(default="", description="why the agent did not finish, or which protected file it changed")
    commit: str | None = Field(default=None, description="commit with the edited candidate; None without a change")
    candidate_digest: str | None = None
    seconds: float = 0.0
    cost_usd: float | None = None
    transcript: str | None = Field(default=None, description="`blob:` and the SHA-256 of the transcript")
    note: str = Field(default="", description="what the agent says it did")


class IterationEnded(CampaignBody):
    kind: ClassVar[str] = "iteration_ended"

    number: int = Field(ge=1)
    verdict_run: str | None = Field(default=None, description="run of the verdict; None if nothing could be judged")
    verdict: Outcome | None = None
    # The figures below are those of `confirmed_run`, if there is one: that run was not chosen for its gain.
    ratio: float | None = Field(default=None, description="speedup over the baseline in the deciding metric")
    interval: tuple[float, float] | None = None
    noise_band: float | None = None
    rows: tuple[RowFigure, ...] = ()
    against_best: float | None = Field(default=None, description="ratio over that of the best version before")
    prediction: Prediction = "undecided"
    improved: bool = Field(description="faster than the best version before by more than the noise band")
    confirmed_run: str | None = Field(
        default=None, description="run with fresh seeds that confirmed a new best version before it counted"
    )
    kept: bool = Field(description="whether the edit stays; otherwise solution/ goes back to the best version")
    reason: str = ""
    next_step: str = ""
    seconds: float = Field(default=0.0, description="time of the judgement")


class ProfileTaken(CampaignBody):
    """A fresh profile of the best version. Stop rules ask for one."""

    kind: ClassVar[str] = "campaign_profile"

    after_iteration: int
    commit: str
    bottleneck: Bottleneck


class LedgerReread(CampaignBody):
    """All past iterations were read again. Stop rules ask for this."""

    kind: ClassVar[str] = "campaign_reread"

    after_iteration: int
    head: str = Field(description="hash of the last record of the campaign that was read")
    summary: str


class CampaignEnded(CampaignBody):
    kind: ClassVar[str] = "campaign_ended"

    reason: str
    best_iteration: int | None


class ReviewFinding(BaseModel):
    """One finding of a review."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    check: str = Field(description="entry of the review checklist")
    text: str
    file: str = ""
    line: int | None = None


class ReviewGiven(CampaignBody):
    """One review of one version. A later review of the same version may close findings."""

    kind: ClassVar[str] = "campaign_review"

    reviewer: str
    candidate_digest: str
    commit: str
    decision: Literal["approved", "rejected", "findings"]
    why: str = ""
    findings: tuple[ReviewFinding, ...] = ()
    closed: tuple[str, ...] = Field(
        default=(), description="ids of earlier findings that are closed, each with a reason"
    )
    transcript: str | None = None


class VersionJudged(CampaignBody):
    """A judgement of the best version outside an iteration, such as one on all rows of the grid."""

    kind: ClassVar[str] = "campaign_judged"

    candidate_digest: str
    commit: str
    verdict_run: str
    rows: str = Field(description="globs and sets of rows, as for the judge")


class ModelCheck(CampaignBody):
    """Evidence that a model became faster, or that the op's share is too small to measure."""

    kind: ClassVar[str] = "campaign_model_check"

    candidate_digest: str
    method: Literal["denoise", "swap", "arithmetic"]
    improved: bool
    summary: str
    figures: dict[str, float | str] = Field(default_factory=dict)


class Promoted(CampaignBody):
    kind: ClassVar[str] = "campaign_promotion"

    candidate_digest: str
    commit: str = Field(description="commit of the best version")
    branch: str
    branch_commit: str
    verdict_runs: tuple[str, ...]
    files: tuple[str, ...]


BODIES: tuple[type[CampaignBody], ...] = (
    CampaignStarted, BaselineMeasured, IterationStarted, IterationEdited, IterationEnded, ProfileTaken, LedgerReread,
    CampaignEnded, ReviewGiven, VersionJudged, ModelCheck, Promoted,
)  # fmt: skip
KINDS: dict[str, type[CampaignBody]] = {body.kind: body for body in BODIES}
