"""Reports made for tests, in the form that Nsight Compute exports: a page of raw metrics with a line of units."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence

Metrics = Mapping[str, tuple[object, str]]

# A launch on an H200 with 20 waves, in which nothing is busy: each case overrides what it is about.
CALM: dict[str, tuple[object, str]] = {
    "device__attribute_display_name": ("NVIDIA H200", ""),
    "gpu__time_duration.sum": ("100.000000", "us"),
    "gpc__cycles_elapsed.max": ("190000.000000", "cycle"),
    "sm__cycles_active.avg": ("185000.000000", "cycle"),
    "sm__cycles_active.max": ("187000.000000", "cycle"),
    "dram__bytes.sum.per_second": ("963.000000", "Gbyte/s"),
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": ("20.000000", "%"),
    "lts__throughput.avg.pct_of_peak_sustained_elapsed": ("25.000000", "%"),
    "l1tex__throughput.avg.pct_of_peak_sustained_active": ("22.000000", "%"),
    "smsp__issue_active.avg.pct_of_peak_sustained_active": ("18.000000", "%"),
    "sm__issue_active.avg.pct_of_peak_sustained_elapsed": ("17.500000", "%"),
    "smsp__warps_eligible.avg.per_cycle_active": ("0.250000", "warp"),
    "smsp__warps_active.avg.per_cycle_active": ("14.000000", "warp"),
    "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active": ("9.000000", "%"),
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active": ("0.000000", "%"),
    "launch__grid_size": ("21,120", ""),
    "launch__block_size": ("256", ""),
    "launch__sm_count": ("132", "SM"),
    "launch__registers_per_thread": ("32", "register/thread"),
    "launch__occupancy_limit_registers": ("8", "block"),
    "launch__occupancy_limit_shared_mem": ("28", "block"),
    "launch__occupancy_limit_warps": ("8", "block"),
    "launch__occupancy_limit_blocks": ("32", "block"),
    "launch__waves_per_multiprocessor": ("20", ""),
    "sm__maximum_warps_per_active_cycle_pct": ("100.000000", "%"),
    "sm__warps_active.avg.pct_of_peak_sustained_active": ("88.000000", "%"),
    "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio": ("40.000000", "inst"),
    "smsp__average_warps_issue_stalled_wait_per_issue_active.ratio": ("6.000000", "inst"),
    "smsp__average_warps_issue_stalled_selected_per_issue_active.ratio": ("1.000000", "inst"),
}
STALLED = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
ABOUT = {"Process ID": "7", "Process Name": "python3", "Host Name": "127.0.0.1", "Context": "1", "Stream": "7"}


def raw_page(launches: Sequence[Metrics], name: str = "made_kernel", delimiter: str = ",") -> str:
    """Return launches as the page of raw metrics. A metric that is missing in a launch is an empty cell."""
    metrics = sorted({metric for launch in launches for metric in launch})
    units = {metric: unit for launch in launches for metric, (_, unit) in launch.items()}
    stream = io.StringIO()
    writer = csv.writer(stream, quoting=csv.QUOTE_ALL, delimiter=delimiter, lineterminator="\n")
    header = ["ID", *ABOUT, "Kernel Name", "Block Size", "Grid Size", "Device", "CC"]
    writer.writerow([*header, *metrics])
    writer.writerow([*[""] * len(header), *(units[metric] for metric in metrics)])
    for number, launch in enumerate(launches):
        about = [str(number), *ABOUT.values(), name, "(256, 1, 1)", "(21120, 1, 1)", "0", "9.0"]
        writer.writerow([*about, *(launch.get(metric, ("", ""))[0] for metric in metrics)])
    return stream.getvalue()


def calm(**changes: tuple[object, str] | None) -> dict[str, tuple[object, str]]:
    """Return the calm launch with some metrics replaced; None removes one."""
    return {name: value for name, value in {**CALM, **changes}.items() if value is not None}
