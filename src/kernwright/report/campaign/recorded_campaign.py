"""RecordedCampaign: one campaign of the committed evidence, with its verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kernwright.campaign.history import History, Iteration, campaigns_in
from kernwright.campaign.settings import CampaignSettings
from kernwright.campaign.state.standing import ideas, standing_of
from kernwright.core.errors import LedgerError
from kernwright.judge.record.recorded import recorded_bodies
from kernwright.judge.record.verdict import Verdict
from kernwright.ledger.ledger import Ledger
from kernwright.ledger.verify import verify
from kernwright.report.machines import machines_of, model_of

EVIDENCE = Path("evidence", "campaigns")  # below the root of the checkout


@dataclass(frozen=True)
class RecordedCampaign:
    """One campaign, with the verdicts that its records name, by run."""

    history: History
    verdicts: Mapping[str, Verdict]

    @property
    def settings(self) -> CampaignSettings:
        assert self.history.started is not None
        return self.history.started.settings

    @property
    def name(self) -> str:
        return self.settings.name

    @property
    def task(self) -> str:
        """Return the name of the task. The settings may have its folder on the machine of the campaign."""
        return Path(self.settings.task).name

    @property
    def device(self) -> str:
        """Return the model of the device, such as NVIDIA H200."""
        return next((model_of(verdict) for verdict in self.verdicts.values()), self.settings.device)

    @property
    def architecture(self) -> str:
        """Return the architecture of the GPU, such as sm_90, or cpu."""
        capabilities = [each.provenance["hardware"].get("capability") for each in self.verdicts.values()]
        return next((f"sm_{each.replace('.', '')}" for each in capabilities if each), "cpu")

    @property
    def machines(self) -> list[str]:
        return machines_of(self.verdicts.values())

    @property
    def failed_ideas(self) -> list[Iteration]:
        """Return the ideas that were tried to the end and brought no improvement."""
        return [each for each in ideas(self.history) if each.ended and not each.ended.improved]


def result_of(history: History, iteration: Iteration) -> str:
    """Return how an idea compares with the best version before it: improved, slower, no difference shown, ...

    An idea counts as slower only if the intervals of both ratios do not overlap and differ by more than the noise band.
    """
    ended = iteration.ended
    if ended is None:
        return "open"
    if ended.improved:
        return "improved"
    if ended.interval is None:
        return ended.verdict or "not judged"
    best = standing_of(history, before=iteration.number)
    before = next((each.ended for each in history.iterations if each.number == best.iteration), None)
    low, high = (before.interval if before and before.interval else None) or (best.ratio, best.ratio)
    if ended.interval[1] < low and (ended.ratio or 0.0) < best.ratio * (1 - (ended.noise_band or 0.0)):
        return "slower"
    return "no difference shown" if ended.interval[0] <= high else "not confirmed"


def recorded_campaigns(root: Path) -> list[RecordedCampaign]:
    """Return the campaigns in the evidence of a checkout, oldest first.

    Raises:
        LedgerError: a record is damaged. No page is made from it.
    """
    folder = root / EVIDENCE
    if not folder.is_dir():
        return []
    for problem in verify(folder):
        raise LedgerError(f"{folder} is damaged: {problem}", f"restore it: git checkout {EVIDENCE}")
    ledger = Ledger.existing(folder)
    verdicts = {each.run: each.verdict() for each in recorded_bodies(ledger)}
    found = []
    for name in campaigns_in(ledger):
        history = History.read(ledger, name)
        runs = [each.ended.verdict_run for each in history.iterations if each.ended]
        runs += [each.ended.confirmed_run for each in history.iterations if each.ended]
        runs += [history.baseline.verdict_run] if history.baseline else []
        found.append(RecordedCampaign(history, {run: verdicts[run] for run in runs if run in verdicts}))
    return found
