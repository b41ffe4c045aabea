"""Tables for a terminal: what helps is said where it does."""

from __future__ import annotations

import pytest
from rich.console import Console

from kernwright.admission.admission import Admission, MutantTrial
from kernwright.report.table import admission_table


def told(*trials: MutantTrial) -> str:
    console = Console(width=200)
    with console.capture() as captured:
        console.print(admission_table(Admission("t", "d", trials, ())))
    return captured.get()


@pytest.mark.parametrize(
    ("mutant", "survived", "helps"),
    [
        ("low precision", ("r",), True),
        ("low precision", (), False),
        ("dropped term (y)", ("r",), False),  # which more elements would let through, too
    ],
)
def test_a_wrong_rounding_that_survives_needs_more_elements(
    mutant: str, survived: tuple[str, ...], helps: bool
) -> None:
    said = told(MutantTrial("op", mutant, 1, survived, "" if survived else "differs"))
    assert ("remedy: rows of more elements" in said) is helps
    assert ("task refused" in said) is bool(survived)
