"""Tables for a terminal."""

from __future__ import annotations

from rich.console import Console

from kernwright.admission.admission import Admission, MutantTrial
from kernwright.report.table import admission_table


def told(admission: Admission) -> str:
    console = Console(width=200)
    with console.capture() as captured:
        console.print(admission_table(admission))
    return captured.get()


def test_a_refused_task_shows_the_lines_to_change() -> None:
    survivor = MutantTrial("op", "low precision", 1, ("r",), "")
    said = told(Admission("t", "d", (survivor,), (), ("tasks/t/workloads.jsonl:3: too few elements",)))
    assert "change tasks/t/workloads.jsonl:3: " in said
    assert "task refused" in said
