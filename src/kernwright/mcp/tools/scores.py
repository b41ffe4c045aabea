"""ScoreCache: the scores of ledgers, kept until a ledger's files change."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from pathlib import Path

from kernwright.core.errors import LedgerError
from kernwright.ledger.ledger import Ledger
from kernwright.report.scoreboard.score import Score, scores_of

MOST_LEDGERS = 8


@dataclass
class LedgerScores:
    """The verdicts of one ledger, oldest run first.

    Attributes:
        damaged: the causes of the runs that cannot be read.
    """

    ledger: Ledger
    scores: dict[str, list[Score]] = field(default_factory=dict)
    damaged: dict[str, str] = field(default_factory=dict)

    @property
    def all(self) -> list[Score]:
        return [score for own in self.scores.values() for score in own]


class ScoreCache:
    """Reads each run of a ledger once. A run that has grown since is read again."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._known: dict[Path, tuple[object, LedgerScores]] = {}
        self._states: dict[tuple[Path, str], tuple[int, int]] = {}

    def read(self, root: Path) -> LedgerScores:
        """Return the scores of the ledger at a path. Raises LedgerError if there is none."""
        with self._turn:
            stamp = _stamp(root)
            known = self._known.get(root)
            if known is not None and known[0] == stamp:
                return known[1]
            found = self._read(Ledger.existing(root), known[1] if known else None)
            if len(self._known) >= MOST_LEDGERS:
                self._known.clear()
            self._known[root] = (stamp, found)
            return found

    def _read(self, ledger: Ledger, before: LedgerScores | None) -> LedgerScores:
        found = LedgerScores(ledger)
        for run in ledger.runs():
            key, state = (ledger.root, run), _state(ledger, run)
            if before is not None and run in before.scores and self._states.get(key) == state:
                found.scores[run] = before.scores[run]
                continue
            try:
                found.scores[run] = scores_of(ledger, run)
                self._states[key] = state
            except LedgerError as error:
                found.damaged[run] = error.cause
        return found


def _state(ledger: Ledger, run: str) -> tuple[int, int]:
    """Return the size of a run, and the time of its last change where it is a file of its own."""
    path = ledger.run_path(run)
    return ledger.run_size(run), path.stat().st_mtime_ns if path.is_file() else 0


def _stamp(root: Path) -> object:
    """Return what changes when a record is added: names, sizes and times of the ledger's files."""
    files = []
    for folder in (root, root / "runs"):
        if folder.is_dir():
            files += [(each.path, each.stat().st_size, each.stat().st_mtime_ns) for each in os.scandir(folder)]
        elif folder.exists():
            files.append((str(folder), folder.stat().st_size, folder.stat().st_mtime_ns))
    return sorted(files)
