"""The head of a CUDA kernel file states the measured share of a copy's bandwidth, as the evidence has it."""

from __future__ import annotations

import re
from pathlib import Path

from comparisons.bars import LARGE_BYTES

from kernwright.ledger.ledger import Ledger
from kernwright.report.results.results import Results
from kernwright.tasks.catalog import find_task, list_tasks

ROOT = Path(__file__).parents[2]
SAID = re.compile(r"(?:judged on an H200, of|on an H200 for) rows of 100 MB or more: ([^.]+)\.")
ONE = re.compile(r"(\w+) (\d+)(?: to (\d+))? %")


def head_of(source: Path) -> str:
    """Return the comment at the start of a file as one line."""
    lines = source.read_text(encoding="utf-8").splitlines()
    words = [line.removeprefix("//").strip() for line in lines[: next(i for i, x in enumerate(lines) if x[:2] != "//")]]
    return " ".join(words)


def told_in_heads() -> dict[str, tuple[int, int]]:
    told: dict[str, tuple[int, int]] = {}
    for source in (ROOT / "src" / "kernwright" / "ops").rglob("*.cu"):
        for said in SAID.findall(head_of(source)):
            for word in said.split(", "):
                found = ONE.fullmatch(word)
                assert found, f"{source}: {word!r} is not OP N % or OP N to M %"
                op, low, high = found.groups()
                assert op not in told, f"{op} stands at the heads of two files"
                told[op] = int(low), int(high or low)
    return told


def measured() -> dict[str, tuple[int, int]]:
    tasks = [find_task(name) for name in list_tasks()]
    results = Results.gathered(Ledger(ROOT / "evidence" / "h200"), tasks, "cuda", "production")
    # The newest record of each row counts, also where sources have changed since: pages mark those rows.
    shares: dict[str, list[float]] = {}
    for task, row in results.every_row():
        if row.bytes_min >= LARGE_BYTES and (share := results.share_of_copy(task, row)):
            shares.setdefault(row.op, []).append(share)
    return {op: (round(100 * min(own)), round(100 * max(own))) for op, own in shares.items()}


def test_the_head_of_every_judged_kernel_agrees_with_the_evidence() -> None:
    assert told_in_heads() == measured()
