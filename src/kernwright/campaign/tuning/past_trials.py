"""Past trials: what the campaign's ledger says about configurations that were judged."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from kernwright.campaign.history import History
from kernwright.campaign.tuning.search import Tried
from kernwright.campaign.tuning.space import Configuration, as_json

_NOTE = re.compile(r"configuration (\{.*?\})(?:; machine code ([0-9a-f]{16,64}))?")


@dataclass(frozen=True)
class PastTrial:
    """One iteration of the tuner."""

    iteration: int
    configuration: Configuration
    code: str  # digest of its machine code; "" if it is not known
    ratio: float | None
    improved: bool

    @property
    def tried(self) -> Tried:
        return Tried(self.configuration, self.ratio)


def note_of(configuration: Configuration, code: str) -> str:
    """Return the note that keeps a configuration in the ledger."""
    return f"configuration {as_json(configuration)}" + (f"; machine code {code}" if code else "")


def past_trials(history: History) -> list[PastTrial]:
    """Return the judged iterations of the tuner, oldest first. An iteration without a verdict may be tried again."""
    found = []
    for iteration in history.iterations:
        if iteration.edited is None or iteration.ended is None or iteration.ended.verdict is None:
            continue
        if match := _NOTE.search(iteration.edited.note):
            try:
                configuration = json.loads(match[1])
            except ValueError:
                continue
            found.append(
                PastTrial(
                    iteration=iteration.number,
                    configuration=configuration,
                    code=match[2] or "",
                    ratio=iteration.ended.ratio,
                    improved=iteration.ended.improved,
                )
            )
    return found
