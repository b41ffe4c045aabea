"""Metric names: the labels on Nsight Compute's page of details, and the metrics that they stand for.

The page of details has labels instead of names, and some labels changed between versions. A label can have different
meanings in different sections and units ("Memory Throughput"), so that the unit is part of the key where it decides.
"""

from __future__ import annotations

DURATION = "gpu__time_duration.sum"
SM_CLOCK = "gpc__cycles_elapsed.avg.per_second"
SM_BUSY = "sm__cycles_active.avg"
ELAPSED = "gpc__cycles_elapsed.max"
MEMORY_SHARE = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"
COMPUTE_SHARE = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
DRAM_SHARE = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"
DRAM_RATE = "dram__bytes.sum.per_second"
DRAM_READ = "dram__bytes_read.sum"
DRAM_WRITTEN = "dram__bytes_write.sum"
L2_WRITTEN = "l1tex__m_l1tex2xbar_write_bytes.sum"
L2_WRITTEN_SECTORS = "lts__gcomp_input_sectors.sum"  # all writes pass through the compression unit
L2_SHARE = "lts__throughput.avg.pct_of_peak_sustained_elapsed"
L1_SHARE = "l1tex__throughput.avg.pct_of_peak_sustained_active"
L2_HITS = "lts__t_sector_hit_rate.pct"
ISSUE_ACTIVE = "smsp__issue_active.avg.pct_of_peak_sustained_active"
ISSUE_ELAPSED = "sm__issue_active.avg.pct_of_peak_sustained_elapsed"
ELIGIBLE = "smsp__warps_eligible.avg.per_cycle_active"
ACTIVE_WARPS = "smsp__warps_active.avg.per_cycle_active"
WAVES = "launch__waves_per_multiprocessor"
GRID = "launch__grid_size"
BLOCK = "launch__block_size"
SMS = "launch__sm_count"
REGISTERS = "launch__registers_per_thread"
SHARED_STATIC = "launch__shared_mem_per_block_static"
SHARED_DYNAMIC = "launch__shared_mem_per_block_dynamic"
SHARED_DRIVER = "launch__shared_mem_per_block_driver"
SHARED_CONFIGURED = "launch__shared_mem_config_size"
LIMIT_REGISTERS = "launch__occupancy_limit_registers"
LIMIT_SHARED = "launch__occupancy_limit_shared_mem"
LIMIT_WARPS = "launch__occupancy_limit_warps"
LIMIT_BLOCKS = "launch__occupancy_limit_blocks"
THEORETICAL = "sm__maximum_warps_per_active_cycle_pct"
ACHIEVED = "sm__warps_active.avg.pct_of_peak_sustained_active"
SPILL_SHARE = "derived__local_spilling_requests_pct"
INSTRUCTIONS = "inst_executed"
SHARED_WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"
SHARED_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"
SECTORS_EXCESSIVE = "derived__memory_l2_theoretical_sectors_global_excessive"
SECTORS = "memory_l2_theoretical_sectors_global"

# Labels of the page of details, lower case. If a metric has several labels, some are those of older versions.
LABELS: dict[str, str] = {
    "duration": DURATION,
    "elapsed cycles": ELAPSED,
    "sm frequency": SM_CLOCK,
    "sm active cycles": SM_BUSY,
    "average sm active cycles": SM_BUSY,
    "compute (sm) throughput": COMPUTE_SHARE,
    "compute (sm) [%]": COMPUTE_SHARE,
    "sol sm": COMPUTE_SHARE,
    "sm [%]": COMPUTE_SHARE,
    "dram throughput": DRAM_SHARE,
    "sol dram": DRAM_SHARE,
    "l2 cache throughput": L2_SHARE,
    "sol l2 cache": L2_SHARE,
    "l1/tex cache throughput": L1_SHARE,
    "sol l1/tex cache": L1_SHARE,
    "l2 hit rate": L2_HITS,
    "l2 compression input sectors": L2_WRITTEN_SECTORS,
    "one or more eligible": ISSUE_ACTIVE,
    "issue slots busy": ISSUE_ELAPSED,
    "eligible warps per scheduler": ELIGIBLE,
    "active warps per scheduler": ACTIVE_WARPS,
    "waves per sm": WAVES,
    "grid size": GRID,
    "block size": BLOCK,
    "# sms": SMS,
    "registers per thread": REGISTERS,
    "static shared memory per block": SHARED_STATIC,
    "dynamic shared memory per block": SHARED_DYNAMIC,
    "driver shared memory per block": SHARED_DRIVER,
    "shared memory configuration size": SHARED_CONFIGURED,
    "block limit registers": LIMIT_REGISTERS,
    "block limit shared mem": LIMIT_SHARED,
    "block limit warps": LIMIT_WARPS,
    "block limit sm": LIMIT_BLOCKS,
    "theoretical occupancy": THEORETICAL,
    "achieved occupancy": ACHIEVED,
    "executed instructions": INSTRUCTIONS,
    "local memory spilling request overhead": SPILL_SHARE,
}
_BY_UNIT = {
    ("memory throughput", "%"): MEMORY_SHARE,
    ("memory [%]", "%"): MEMORY_SHARE,
    ("sol memory", "%"): MEMORY_SHARE,
    ("memory throughput", "byte/s"): DRAM_RATE,
}
# A metric that some versions, or some sections, have under another name.
OLDER_NAMES = {
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": DRAM_SHARE,
    "gpu__time_duration.avg": DURATION,
    "sm__cycles_elapsed.avg.per_second": SM_CLOCK,
    "smsp__cycles_elapsed.avg.per_second": SM_CLOCK,
    "sm__memory_throughput.avg.pct_of_peak_sustained_elapsed": MEMORY_SHARE,
    "smsp__inst_executed.sum": INSTRUCTIONS,
    "sm__inst_issued.avg.pct_of_peak_sustained_active": ISSUE_ACTIVE,
}
KNOWN = frozenset({*LABELS.values(), *_BY_UNIT.values()})


def metric_of(label: str, unit: str) -> str:
    """Return the metric that a label of the page of details stands for. A metric's own name is returned as it is."""
    key = label.strip().lower()
    return _BY_UNIT.get((key, unit)) or LABELS.get(key) or OLDER_NAMES.get(label) or label


def current_name(metric: str) -> str:
    """Return the name that Kernwright uses for a metric. It differs for metrics of older versions."""
    return OLDER_NAMES.get(metric, metric)
