"""Past trials: what the campaign's ledger says about configurations that were judged."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

from kernwright.campaign.history import History
from kernwright.campaign.tuning.search import Tried
from kernwright.campaign.tuning.space import Configuration, as_json

COMPARED = ("faster", "same", "slower", "inconclusive")  # verdicts on correct kernels
_NOTE = re.compile(r"configuration (\{.*?\})(?:; machine code ([0-9a-f]{16,64}))?")


@dataclass(frozen=True)
class PastTrial:
    """One iteration of the tuner."""

    iteration: int
    configuration: Configuration
    code: str  # digest of its machine code; "" if it is not known
    ratio: float | None
    is_correct: bool
    is_kept: bool  # it became the best version, or is the start

    @property
    def tried(self) -> Tried:
        return Tried(self.configuration, self.ratio)


def note_of(configuration: Configuration, code: str) -> str:
    """Return the note that keeps a configuration in the ledger."""
    return f"configuration {as_json(configuration)}" + (f"; machine code {code}" if code else "")


def past_trials(history: History, read: Callable[[str], Configuration | None]) -> list[PastTrial]:
    """Return the judged iterations with a configuration of the space, oldest first.

    An iteration without a verdict may be tried again.

    Args:
        read: returns the configuration of a commit, for versions that a user gave or edited.
    """
    found = []
    for iteration in history.iterations:
        edited, ended = iteration.edited, iteration.ended
        if edited is None or edited.commit is None or ended is None or ended.verdict is None:
            continue
        noted = _noted(edited.note)
        configuration = noted[0] if noted else read(edited.commit)
        if configuration is None:
            continue
        found.append(
            PastTrial(
                iteration=iteration.number,
                configuration=configuration,
                code=noted[1] if noted else "",
                ratio=ended.ratio if ended.verdict in COMPARED else None,
                is_correct=ended.verdict in COMPARED,
                is_kept=ended.kept,
            )
        )
    return found


def _noted(note: str) -> tuple[Configuration, str] | None:
    if (match := _NOTE.search(note)) is None:
        return None
    try:
        return json.loads(match[1]), match[2] or ""
    except ValueError:
        return None
