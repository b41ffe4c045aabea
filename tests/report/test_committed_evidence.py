"""The committed evidence is small and sound, and its verdicts follow from it."""

from __future__ import annotations

from pathlib import Path

from kernwright.judge.record.recompute import recompute
from kernwright.ledger.ledger import Ledger
from kernwright.ledger.verify import verify

EVIDENCE = Path(__file__).parents[2] / "evidence"
MOST_BYTES = 8_000_000


def test_it_is_small() -> None:
    assert sum(path.stat().st_size for path in EVIDENCE.rglob("*") if path.is_file()) <= MOST_BYTES


def test_every_verdict_follows_from_its_samples() -> None:
    for folder in sorted(path for path in EVIDENCE.iterdir() if path.is_dir()):
        assert verify(folder) == []
        found = recompute(Ledger(folder))
        assert found.verdicts > 0 and (found.differences, found.underivable) == ([], {})
