"""Bottleneck: a profile of one row, with what bounds its main kernel; or the reason why there is none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kernwright.campaign.campaign import Campaign
from kernwright.campaign.record import Bottleneck, RowFigure
from kernwright.core.errors import KernwrightError
from kernwright.diagnose.ncu.bound.kernel_diagnosis import KernelDiagnosis, diagnose
from kernwright.diagnose.ncu.report.metric_names import DURATION

Tell = Callable[[str], None]


def hottest_row(rows: tuple[RowFigure, ...]) -> str:
    """Return the row with the longest time of a call."""
    return max(rows, key=lambda row: row.candidate_us or row.baseline_us or 0.0).id


def find_bottleneck(campaign: Campaign, row: str, side: str, tell: Tell) -> Bottleneck:
    """Return what bounds one side on a row, from one capture with Nsight Compute.

    Args:
        side: name of a baseline, or the folder of a candidate that was judged before: it runs in no sandbox.
        tell: gets a line of progress.
    """
    device = campaign.settings.device
    if not device.startswith("cuda"):
        return Bottleneck(row=row, unavailable=f"hardware counters are those of a GPU, and the device is {device}")
    try:
        diagnoses = _captured(campaign, row, side, tell)
    except KernwrightError as error:
        return Bottleneck(row=row, unavailable=error.cause)
    longest = max(diagnoses, key=lambda each: each.kernel.value(DURATION) or 0.0)
    return bottleneck_of(row, longest, len(diagnoses))


def bottleneck_of(row: str, diagnosis: KernelDiagnosis, kernels: int) -> Bottleneck:
    """Return the bottleneck that a diagnosis shows.

    Args:
        kernels: number of kernels of the call; the diagnosis is that of the longest.
    """
    longest = f", the longest of {kernels} kernels" if kernels > 1 else ""
    name = f"{diagnosis.kernel.short_name}{longest}"
    if diagnosis.main is None:
        unknown = "; ".join(diagnosis.unknown[:2])
        return Bottleneck(row=row, summary=f"{name}: the counters do not show the bound: {unknown}")
    counters = {counter.shown: counter.value for counter in diagnosis.main.counters}
    helps = f"; usually helps: {diagnosis.main.helps[0]}" if diagnosis.main.helps else ""
    return Bottleneck(
        row=row, bound=diagnosis.main.name, summary=f"{name}: {diagnosis.main.what}{helps}", counters=counters
    )


def _captured(campaign: Campaign, row: str, side: str, tell: Tell) -> list[KernelDiagnosis]:
    from kernwright.diagnose.ncu.capture.target import CaptureOptions, capture_rows

    # Reports are filed under the campaign's name, below the folder of all reports.
    options = CaptureOptions(label=campaign.name)
    where = str(Path(side).absolute()) if Path(side, "candidate.toml").is_file() else side
    (captured,) = capture_rows(campaign.settings.task, row, [where], options, tell)
    return [diagnose(kernel, captured.kernels) for kernel in captured.kernels]
