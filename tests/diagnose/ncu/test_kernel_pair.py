"""Pairs of launches from two reports: which belongs to which, and their figures side by side."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernwright.diagnose.ncu.bound.kernel_diagnosis import KernelDiagnosis, diagnose
from kernwright.diagnose.ncu.kernel_pair import pair_reports
from kernwright.diagnose.ncu.report.profiled_kernel import Counter, ProfiledKernel
from kernwright.diagnose.ncu.report.report_file import read_report

EXPORTS = Path(__file__).parent / "exports"


def launches(*named: tuple[str, int]) -> list[KernelDiagnosis]:
    """Return launches with a name and a number of blocks; the duration tells their positions apart."""
    return [
        diagnose(
            ProfiledKernel(
                number=number,
                name=name,
                grid=(blocks, 1, 1),
                block=(256, 1, 1),
                counters={"gpu__time_duration.sum": Counter(1e-6 * (number + 1), "s", "Duration")},
            )
        )
        for number, (name, blocks) in enumerate(named)
    ]


def test_launches_are_matched_by_name_and_grid_and_equal_ones_in_order() -> None:
    before = launches(("norm", 8), ("rope", 4), ("norm", 16), ("norm", 8), ("old", 1))
    after = launches(("norm", 16), ("norm", 8), ("new", 1), ("norm", 8), ("rope", 5))
    found = pair_reports(before, after)
    numbers = [(pair.before.kernel.number, pair.after.kernel.number) for pair in found.pairs]
    assert numbers == [(0, 1), (1, 4), (2, 0), (3, 3), (4, 2)]
    assert [pair.matched_by for pair in found.pairs][1] == "name"
    assert found.only_before == found.only_after == ()


def test_launches_without_a_partner_are_kept_apart() -> None:
    found = pair_reports(launches(("norm", 8), ("a", 1), ("b", 1)), launches(("norm", 8), ("c", 1)))
    assert len(found.pairs) == 1
    assert [each.kernel.name for each in found.only_before] == ["a", "b"]
    assert [each.kernel.name for each in found.only_after] == ["c"]
    assert found.seconds == (pytest.approx(6e-6), pytest.approx(3e-6))


def test_template_arguments_do_not_separate_a_kernel_from_itself() -> None:
    before, after = launches(("void f<float, 4>(int)", 8)), launches(("void f<float, 8>(int)", 4), ("g", 1))
    (pair,) = pair_reports(before, after).pairs
    assert pair.after.kernel.name == "void f<float, 8>(int)"


def test_the_figures_of_a_pair_are_ratios_of_the_same_counter() -> None:
    raw, details = (read_report(EXPORTS / page) for page in ("raw.csv", "details.csv"))
    found = pair_reports([diagnose(each, raw) for each in raw], [diagnose(each, details) for each in details])
    assert len(found.pairs) == 4
    for pair in found.pairs:
        figures = {figure.name: figure for figure in pair.figures}
        assert figures["duration"].ratio == pytest.approx(1, rel=1e-3)
        assert figures["memory traffic"].ratio == pytest.approx(1, rel=1e-2)  # not with and without late writes
        assert figures["instructions"].ratio == pytest.approx(1, rel=1e-3)
        assert figures["read from memory"].after is None and figures["read from memory"].ratio is None
