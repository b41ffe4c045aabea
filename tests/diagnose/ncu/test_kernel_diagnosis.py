"""The bound of a kernel: known answers of real exports, and a made launch for each bound."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_reports import STALLED, Metrics, calm, raw_page

from kernwright.diagnose.ncu.bound.activity import waves_of
from kernwright.diagnose.ncu.bound.flops import roofline_of
from kernwright.diagnose.ncu.bound.kernel_diagnosis import BOUNDS, KernelDiagnosis, diagnose
from kernwright.diagnose.ncu.report.csv_report import read_csv_report
from kernwright.diagnose.ncu.report.report_file import read_report
from kernwright.diagnose.roofline.gpu_model import gpu_named, sm_limits
from kernwright.diagnose.roofline.occupancy import occupancy

EXPORTS = Path(__file__).parent / "exports"
KNOWN = ["bandwidth", "underfill", "issue", "issue"]  # known before the rules were written

DURATION = "gpu__time_duration.sum"
ELAPSED = "gpc__cycles_elapsed.max"
BUSY, BUSIEST = "sm__cycles_active.avg", "sm__cycles_active.max"
RATE = "dram__bytes.sum.per_second"
DRAM = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"
L2 = "lts__throughput.avg.pct_of_peak_sustained_elapsed"
L1 = "l1tex__throughput.avg.pct_of_peak_sustained_active"
ISSUE = "smsp__issue_active.avg.pct_of_peak_sustained_active"
ISSUE_ELAPSED = "sm__issue_active.avg.pct_of_peak_sustained_elapsed"
ELIGIBLE = "smsp__warps_eligible.avg.per_cycle_active"
FMA = "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active"
TENSOR = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"
GRID, WAVES, SMS = "launch__grid_size", "launch__waves_per_multiprocessor", "launch__sm_count"
BY_REGISTERS, BY_SHARED = "launch__occupancy_limit_registers", "launch__occupancy_limit_shared_mem"
THEORETICAL = "sm__maximum_warps_per_active_cycle_pct"
ACHIEVED = "sm__warps_active.avg.pct_of_peak_sustained_active"
SPILLS = "derived__local_spilling_requests_pct"
CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"
WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"


def diagnosed(launch: Metrics) -> KernelDiagnosis:
    (kernel,) = read_csv_report(Path("made.csv"), raw_page([launch]))
    return diagnose(kernel)


# What differs from the calm launch, and the bound that must be named.
CASES: dict[str, tuple[dict[str, tuple[object, str] | None], str]] = {
    "memory at the rate of a copy": ({RATE: ("4.20", "Tbyte/s"), DRAM: ("87.4", "%"), L2: ("88", "%")}, "bandwidth"),
    "memory of an older version's units": ({RATE: ("4,200", "Gbyte/second"), DRAM: ("87.4", "%")}, "bandwidth"),
    "memory at the ceiling, and issue as busy": (
        {RATE: ("3.95", "Tbyte/s"), DRAM: ("82.2", "%"), ISSUE: ("82", "%"), ELIGIBLE: ("2.5", "warp")},
        "bandwidth",
    ),
    "memory at 75 %, warps out of data": ({RATE: ("3.2", "Tbyte/s"), DRAM: ("66.5", "%")}, "bandwidth"),
    "writes that the L2 cache still holds": (
        {
            RATE: ("2.0", "Tbyte/s"),
            DRAM: ("41.5", "%"),
            DURATION: ("20", "us"),
            "dram__bytes_read.sum": ("39", "Mbyte"),
            "dram__bytes_write.sum": ("1", "Mbyte"),
            "l1tex__m_l1tex2xbar_write_bytes.sum": ("40", "Mbyte"),
        },
        "bandwidth",
    ),
    "writes that the L2 cache still holds, on the page of details": (
        {
            RATE: ("2.1", "Tbyte/s"),
            DRAM: ("43.9", "%"),
            L2: ("74", "%"),
            DURATION: ("14.34", "us"),
            "lts__gcomp_input_sectors.sum": ("786,615", "sector"),
            "lts__t_sector_hit_rate.pct": ("51.74", "%"),
        },
        "bandwidth",
    ),
    "the L2 cache, with little memory traffic": ({L2: ("84", "%")}, "L2"),
    "the L2 cache, in a short kernel that writes little": (
        {
            L2: ("84", "%"),
            DURATION: ("14.34", "us"),
            "lts__gcomp_input_sectors.sum": ("7,866", "sector"),
            "lts__t_sector_hit_rate.pct": ("90", "%"),
        },
        "L2",
    ),
    "the L1 cache, with a full queue": ({L1: ("86", "%"), STALLED.format("lg_throttle"): ("30", "inst")}, "L1"),
    "bank conflicts": (
        {
            L1: ("85", "%"),
            CONFLICTS: ("900,000", ""),
            WAVEFRONTS: ("1,000,000", ""),
            STALLED.format("mio_throttle"): ("25", "inst"),
        },
        "shared memory",
    ),
    "a scheduler that is never idle": ({ISSUE: ("93", "%"), ELIGIBLE: ("4", "warp")}, "issue"),
    "ready warps that wait for their turn": (
        {ISSUE: ("72", "%"), ELIGIBLE: ("2", "warp"), RATE: ("3.3", "Tbyte/s"), DRAM: ("68.5", "%"), L1: ("80", "%")},
        "issue",
    ),
    "tensor cores": ({TENSOR: ("91", "%"), L2: ("55", "%"), ISSUE: ("22", "%")}, "compute"),
    "tensor cores, far above memory": ({TENSOR: ("86", "%"), RATE: ("2.7", "Tbyte/s"), DRAM: ("56", "%")}, "compute"),
    "the FP32 pipe": (
        {
            FMA: ("88", "%"),
            ISSUE: ("80", "%"),
            ELIGIBLE: ("0.9", "warp"),
            STALLED.format("math_pipe_throttle"): (40, ""),
        },
        "compute",
    ),
    "a short kernel on all SMs": (
        {DURATION: ("2,240", "ns"), ELAPSED: (4300, "cycle"), BUSY: (1500, "cycle"), BUSIEST: (1700, "cycle")},
        "launch",
    ),
    "40 blocks": (
        {GRID: ("40", ""), WAVES: ("0.04", ""), BUSY: (56000, "cycle"), BUSIEST: (186000, "cycle")},
        "underfill",
    ),
    "40 blocks that keep their SMs busy": (
        {
            GRID: ("40", ""),
            WAVES: ("0.04", ""),
            BUSY: (56000, "cycle"),
            BUSIEST: (186000, "cycle"),
            ISSUE: ("92", "%"),
            ISSUE_ELAPSED: ("27", "%"),
            ELIGIBLE: ("3", "warp"),
        },
        "underfill",
    ),
    "a block on each SM, and room for 8": ({GRID: ("132", ""), WAVES: ("0.12", ""), ACHIEVED: (12, "%")}, "underfill"),
    "a second wave of a few blocks": (
        {GRID: ("1,100", ""), WAVES: ("1.04", ""), BUSY: (97000, "cycle"), BUSIEST: (187000, "cycle")},
        "tail",
    ),
    "a second wave of a few blocks, one on each SM": (
        {GRID: ("1,188", ""), WAVES: ("1.13", ""), ACHIEVED: ("61", "%")},
        "tail",
    ),
    "many waves, and warps that leave early": ({ACHIEVED: ("55", "%"), WAVES: ("20", "")}, "occupancy"),
    "blocks of different lengths": ({BUSY: (110000, "cycle"), BUSIEST: (188000, "cycle")}, "tail"),
    "a quarter of the warps, for registers": (
        {BY_REGISTERS: ("2", "block"), THEORETICAL: ("25", "%"), ACHIEVED: ("24", "%"), WAVES: ("80", "")},
        "registers",
    ),
    "spilled registers": ({SPILLS: ("35", "%")}, "registers"),
    "a quarter of the warps, for shared memory": (
        {BY_SHARED: ("2", "block"), THEORETICAL: ("25", "%"), ACHIEVED: ("24", "%"), WAVES: ("80", "")},
        "occupancy",
    ),
    "warps that leave early": ({ACHIEVED: ("40", "%")}, "occupancy"),
    "warps that wait for memory": ({}, "latency"),
    "warps that wait at a barrier": ({STALLED.format("barrier"): ("90", "inst")}, "latency"),
}


def test_busy_cache_of_a_short_kernel_may_serve_memory() -> None:
    found = diagnosed(calm(**{L2: ("84", "%"), DURATION: ("14.34", "us")}))
    assert found.main is None
    assert any("L2" in line for line in found.unknown)


@pytest.mark.parametrize("case", CASES)
def test_the_bound_of_a_launch_is_named(case: str) -> None:
    changes, expected = CASES[case]
    diagnosis = diagnosed(calm(**changes))
    assert diagnosis.contradictions == ()
    assert diagnosis.main is not None
    assert diagnosis.main.name == expected
    assert diagnosis.main.counters and diagnosis.main.helps


def test_every_bound_has_a_case() -> None:
    assert {bound for _, bound in CASES.values()} == set(BOUNDS)


@pytest.mark.parametrize("page", ["raw.csv", "details.csv"])
def test_real_exports_have_their_known_answers(page: str) -> None:
    kernels = read_report(EXPORTS / page)
    found = [diagnose(kernel, kernels) for kernel in kernels]
    assert [each.main and each.main.name for each in found] == KNOWN
    assert {each.gpu and each.gpu.title for each in found} == {"H200"}
    assert [each.contradictions for each in found] == [()] * 4
    values = {counter.shown: counter.value for each in (found[1], found[2]) for counter in each.main.counters}
    assert any(value == pytest.approx(75.3, abs=0.1) for value in values.values())
    assert waves_of(kernels[2]) == pytest.approx(76.8, abs=0.05)
    assert waves_of(kernels[1]) == pytest.approx(0.011, abs=1e-3)


def test_the_occupancy_calculator_agrees_with_the_exports() -> None:
    for kernel in read_report(EXPORTS / "raw.csv"):
        value = {name: kernel.value(f"launch__{name}") or 0.0 for name in (
            "block_size", "registers_per_thread", "shared_mem_per_block_static", "shared_mem_per_block_dynamic",
            "shared_mem_config_size", "occupancy_limit_registers", "occupancy_limit_shared_mem",
            "occupancy_limit_warps", "occupancy_limit_blocks",
        )}  # fmt: skip
        found = occupancy(
            sm_limits()[str(kernel.capability)],
            int(value["block_size"]),
            int(value["registers_per_thread"]),
            int(value["shared_mem_per_block_static"] + value["shared_mem_per_block_dynamic"]),
            int(value["shared_mem_config_size"]),
        )
        assert found.share * 100 == kernel.value(THEORETICAL)
        assert found.by_limit == {
            "warps": value["occupancy_limit_warps"],
            "blocks": value["occupancy_limit_blocks"],
            "registers": value["occupancy_limit_registers"],
            "shared memory": value["occupancy_limit_shared_mem"],
        }


def test_the_roofline_of_an_export_follows_from_its_definition() -> None:
    kernels = read_report(EXPORTS / "raw.csv")
    norm = diagnose(kernels[3], kernels)
    place = roofline_of(norm.kernel, norm.gpu)
    assert place is not None and place.is_memory_side
    # LayerNorm in fp32 over 8424 x 3072 elements: mean, variance and affine are about 18 operations per element.
    assert 8424 * 3072 * 10 < place.reached * 40.096e-6 < 8424 * 3072 * 30
    assert place.ridge == pytest.approx(66.9 / 4.26, rel=0.01)
    assert place.share == pytest.approx(place.reached / place.intensity / 4.26e12)


def test_matrix_products_have_the_ceiling_of_the_tensor_cores() -> None:
    rate = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum.per_cycle_elapsed"
    products = {
        "smsp__cycles_elapsed.avg.per_second": ("1.9", "Ghz"),
        **{rate.format(name): ("1", "inst/cycle") for name in ("fadd", "fmul", "ffma")},
        "sm__ops_path_tensor_src_bf16_dst_fp32.sum": ("70,000,000,000", ""),
        "sm__ops_path_tensor_src_fp8_sparsity_off.sum": ("0", ""),
    }
    diagnosis = diagnosed(calm(**{TENSOR: ("71", "%"), **products}))
    place = roofline_of(diagnosis.kernel, diagnosis.gpu)
    assert place is not None and not place.is_memory_side
    assert place.compute_ceiling / 1e12 == pytest.approx(1070, rel=0.01)
    assert place.reached / 1e12 == pytest.approx(700, rel=0.01)
    uncounted = diagnosed(calm(**{TENSOR: ("71", "%")}))
    assert roofline_of(uncounted.kernel, uncounted.gpu) is None


MISSING = {
    "all of memory": ({RATE: None, DRAM: None}, "memory"),
    "issue": ({ISSUE: None, ISSUE_ELAPSED: None}, "issue"),
}


@pytest.mark.parametrize("case", MISSING)
def test_without_the_counters_that_decide_nothing_is_claimed(case: str) -> None:
    changes, about = MISSING[case]
    diagnosis = diagnosed(calm(**changes))
    assert diagnosis.main is None
    assert any(about in each for each in diagnosis.unknown)


def test_a_resource_at_its_ceiling_needs_no_other_counter() -> None:
    only = {name: calm()[name] for name in ("device__attribute_display_name", DURATION)}
    diagnosis = diagnosed({**only, RATE: ("4.1", "Tbyte/s")})
    assert diagnosis.main is not None and diagnosis.main.name == "bandwidth"
    assert len(diagnosis.unknown) >= 3
    launch = diagnosed({**only, GRID: ("12", ""), SMS: ("132", "SM")})
    assert launch.main is not None and launch.main.name == "underfill"


CONTRADICTIONS = {
    "a share above 100 %": ({ISSUE: ("250", "%"), ISSUE_ELAPSED: None}, "250"),
    "more than the memory can move": ({RATE: ("9.1", "Tbyte/s")}, "9.1"),
    "a rate and a share that do not agree": ({RATE: ("4.1", "Tbyte/s"), DRAM: ("12", "%")}, "4.1"),
    "no time": ({DURATION: ("0", "us")}, "no time"),
    "more warps than fit": ({ACHIEVED: ("90", "%"), THEORETICAL: ("50", "%")}, "90"),
    "waves that the grid does not have": ({WAVES: ("3", "")}, "20"),
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_counters_that_exclude_each_other_are_named_and_not_used(case: str) -> None:
    changes, about = CONTRADICTIONS[case]
    diagnosis = diagnosed(calm(**changes))
    assert [about in each for each in diagnosis.contradictions] == [True]
    bad = {name for name in changes if changes[name] is not None}
    assert diagnosis.main is None or not bad & {counter.shown for counter in diagnosis.main.counters}


def test_a_share_that_decides_is_not_believed_when_it_is_contradicted() -> None:
    assert diagnosed(calm(**{RATE: ("4.1", "Tbyte/s"), DRAM: ("12", "%")})).main is None


def test_another_gpu_has_its_own_ceiling() -> None:
    rate = {RATE: ("1.8", "Tbyte/s"), DRAM: ("88", "%"), SMS: ("108", "SM"), WAVES: ("24.4", "")}
    a100 = diagnosed(calm(**rate, device__attribute_display_name=("NVIDIA A100-SXM4-80GB", "")))
    assert a100.gpu is not None and a100.gpu.title == "A100 80GB"
    assert a100.main is not None and a100.main.name == "bandwidth"
    unknown = diagnosed(calm(**rate, device__attribute_display_name=("NVIDIA X900", "")))
    assert unknown.gpu is not None and unknown.gpu.memory_peak == pytest.approx(1.8e12 / 0.88)
    assert unknown.main is not None and unknown.main.name == "bandwidth"
    untold = calm(**{**rate, SMS: ("77", "SM"), WAVES: None, "device__attribute_display_name": None})
    (kernel,) = read_csv_report(Path("made.csv"), raw_page([untold]))
    assert diagnose(kernel, named=gpu_named("A100")).gpu == a100.gpu


def test_needless_sectors_are_observed() -> None:
    rope = diagnose(read_report(EXPORTS / "raw.csv")[2])
    assert any("44%" in each and "coalesced" in each for each in rope.observations)
    assert [bound.name for bound in rope.others] == ["L1", "bandwidth"]
