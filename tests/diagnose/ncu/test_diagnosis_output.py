"""The output of a diagnosis names pages of the wiki that fit its bound and its GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_reports import CALM, Metrics, raw_page

from kernwright.diagnose.ncu.bound.kernel_diagnosis import diagnose
from kernwright.diagnose.ncu.diagnosis_output import as_json, lines_of
from kernwright.diagnose.ncu.report.report_file import read_csv_report
from kernwright.wiki.wiki import the_wiki

BANDWIDTH: Metrics = {
    "dram__bytes.sum.per_second": ("4.20", "Tbyte/s"),
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": ("87.4", "%"),
}
ISSUE: Metrics = {
    "smsp__issue_active.avg.pct_of_peak_sustained_active": ("88", "%"),
    "sm__issue_active.avg.pct_of_peak_sustained_elapsed": ("87", "%"),
    "smsp__warps_eligible.avg.per_cycle_active": ("2.5", "warp"),
}


@pytest.mark.parametrize(("metrics", "bound"), [(BANDWIDTH, "bandwidth"), (ISSUE, "issue")])
def test_a_bound_comes_with_pages_for_it(metrics: Metrics, bound: str) -> None:
    (kernel,) = read_csv_report(Path("made.csv"), raw_page([{**CALM, **metrics}]))
    found = diagnose(kernel)
    assert found.main is not None and found.main.name == bound
    pages = as_json(found)["wiki"]
    assert len(pages) == 3
    for name in pages:
        page = the_wiki().page(name)
        assert bound in page.bottlenecks and {"all", "sm_90"} & set(page.architectures)
    assert f"    read: kernwright wiki show {pages[0]} (also {pages[1]}, {pages[2]})" in list(lines_of(found))
