"""Writes docs/comparisons.md: the records of a ledger next to milestone bars and to figures of others.

usage: python benchmarks/compare.py [--ledger evidence/h200] [--page docs/comparisons.md] [--check]

With --check nothing is written, and the exit status is 1 if the page differs from the ledger.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from comparisons.page import page_of

from kernwright.ledger.ledger import Ledger
from kernwright.report.field.field import Field
from kernwright.report.results.results import Results
from kernwright.tasks.catalog import find_task, list_tasks

DEVICE, ROWS, BASELINE = "cuda", "production", "eager"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ledger", type=Path, default=Path("evidence/h200"), help="the ledger to read")
    parser.add_argument("--page", type=Path, default=Path("docs/comparisons.md"), help="the page to write")
    parser.add_argument("--check", action="store_true", help="compare the page with the ledger and write nothing")
    chosen = parser.parse_args()
    ledger, tasks = Ledger(chosen.ledger), [find_task(name) for name in list_tasks()]
    results = Results.gathered(ledger, tasks, DEVICE, ROWS)
    field = Field.gathered(ledger, tasks, BASELINE, DEVICE, ROWS)
    text = page_of(results, field, f"python benchmarks/compare.py --ledger {chosen.ledger}")
    if not chosen.check:
        chosen.page.write_text(text, encoding="utf-8")
        return 0
    if chosen.page.is_file() and chosen.page.read_text(encoding="utf-8") == text:
        return 0
    print(f"{chosen.page} and the ledger disagree; remedy: the same command without --check", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
