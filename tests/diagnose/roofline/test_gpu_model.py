"""The table of GPUs: names as drivers report them, and numbers that must agree with each other."""

from __future__ import annotations

import ast
import json
import re
import statistics
from pathlib import Path

import pytest

from kernwright.diagnose.roofline.gpu_model import common_limits, figure_sources, gpu_models, gpu_named, sm_limits
from kernwright.ledger.ledger import Ledger

ROOT = Path(__file__).parents[3]

REPORTED = {
    "Tesla T4": "T4",
    "NVIDIA A100-SXM4-40GB": "A100 40GB",
    "NVIDIA A100-PCIE-40GB": "A100 40GB",
    "NVIDIA A100-SXM4-80GB": "A100 80GB",
    "NVIDIA A100 80GB PCIe": "A100 80GB PCIe",
    "NVIDIA L40S": "L40S",
    "NVIDIA GeForce RTX 4090": "RTX 4090",
    "NVIDIA H100 80GB HBM3": "H100",
    "NVIDIA H100 PCIe": "H100 PCIe",
    "NVIDIA H100 NVL": "H100 NVL",
    "NVIDIA H200": "H200",
    "nvidia  h200": "H200",
    "NVIDIA B200": "B200",
}
# Other chips, or slices of one, whose names contain a name of the table.
OTHERS = [
    "NVIDIA H200 MIG 3g.71gb",
    "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
    "NVIDIA GH200 480GB",
    "NVIDIA GB200",
    "NVIDIA H20",
    "NVIDIA L40",
    "NVIDIA GeForce RTX 4090 Laptop GPU",
    "NVIDIA GeForce RTX 4090 D",
    "NVIDIA T400 4GB",
    "NVIDIA A1000",
    "",
]
# FLOPs per second of the data sheets, in 1e12: fp32, and dense fp16 or bf16 on the tensor cores with fp32 sums. Data
# sheets assume a lower clock than the highest for some chips, so that the product of the table's numbers may be larger.
DATA_SHEETS = {
    "T4": (8.1, 65),
    "A100 80GB": (19.5, 312),
    "L40S": (91.6, 362),
    "RTX 4090": (82.6, 165.2),
    "H100": (66.9, 989.4),
    "H100 PCIe": (51.2, 756),
    "H200": (66.9, 989.4),
    "B200": (75, 2250),
}


@pytest.mark.parametrize(("name", "title"), REPORTED.items())
def test_a_reported_name_finds_its_model(name: str, title: str) -> None:
    model = gpu_named(name)
    assert model is not None
    assert model.title == title


@pytest.mark.parametrize("name", OTHERS)
def test_another_chip_is_not_taken_for_one_of_the_table(name: str) -> None:
    assert gpu_named(name) is None


@pytest.mark.parametrize(("title", "peaks"), DATA_SHEETS.items())
def test_sms_clock_and_lanes_give_the_peaks_of_the_data_sheet(title: str, peaks: tuple[float, float]) -> None:
    model = next(model for model in gpu_models() if model.title == title)
    fp32, tensor = peaks
    assert model.fp32_peak / 1e12 == pytest.approx(fp32, rel=0.01)
    assert tensor * 0.99 < model.tensor_peak / 1e12 < tensor * 1.10


def test_the_ceiling_is_a_copy_and_says_whether_it_was_measured() -> None:
    h200, h100 = gpu_named("NVIDIA H200"), gpu_named("NVIDIA H100 80GB HBM3")
    assert h200 is not None and h100 is not None
    assert h200.memory_ceiling == 4.26e12 < h200.bandwidth
    assert h100.copy_bandwidth is None and 0.85 < h100.memory_ceiling / h100.bandwidth < 0.95
    assert "measured" in h200.ceiling_source and "data sheet" in h100.ceiling_source
    assert all(model.sources["copy"].kind == "measured" for model in gpu_models() if model.copy_bandwidth)


def test_every_figure_has_a_source_with_version_and_date() -> None:
    entries = [common_limits(), *sm_limits().values(), *gpu_models()]
    used = [source for entry in entries for source in entry.sources.values()]
    assert len(used) > 150
    for source in figure_sources().values():
        assert source in used, f"{source.title} is the source of no figure"
        assert source.version
        assert re.fullmatch(r"\d{4}(-\d\d){0,2}", source.date)
        assert source.kind == "assumed" or source.url or source.record or source.kind == "measured"


def test_no_model_is_called_measured_where_only_an_h200_was() -> None:
    measured = {model.title for model in gpu_models() for each in model.sources.values() if each.kind == "measured"}
    assert measured == {"H200"}


def test_the_figures_of_the_h200_are_those_of_the_records() -> None:
    recorded = json.loads((ROOT / "docs" / "figures_gpu.json").read_text(encoding="utf-8"))["A/A"]["hardware"]
    h200 = gpu_named(recorded["model"])
    assert h200 is not None
    assert (h200.sms, h200.l2_bytes) == (recorded["processors"], recorded["cache_bytes"])
    assert h200.limits.capability == recorded["capability"]
    assert h200.bandwidth == pytest.approx(recorded["peak_bytes_per_s"], rel=0.01)
    verdicts = [each for each in Ledger(ROOT / "evidence" / "h200").all_records() if each.kind == "verdict"]
    rows = [row for verdict in verdicts for row in verdict.body["rows"] if row["bytes_min"] > 5e8]
    copies = [row["bytes_min"] / row["fastest_copy_us"] * 1e6 for row in rows if row.get("fastest_copy_us")]
    assert len(copies) > 50
    assert h200.copy_bandwidth == pytest.approx(statistics.median(copies), rel=0.01)


def test_no_other_module_has_constants_of_gpus() -> None:
    """Numbers that belong into the table: bandwidths, sizes of caches, registers, and limits of an SM."""
    table = {132, 108, 142, 148, 114, 4260, 4.26e12, 4800, 4.8e12, 228, 227, 163, 164, 5.8e-6, 61440}
    found = []
    for path in sorted((ROOT / "src" / "kernwright" / "diagnose").rglob("*.py")):
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        values = {node.value for node in nodes if isinstance(node, ast.Constant) and type(node.value) in (int, float)}
        found += [f"{path.name}: {value}" for value in values & table]
    assert found == []


def test_a_block_fits_on_an_sm() -> None:
    for limits in sm_limits().values():
        assert limits.shared_memory_block + limits.shared_memory_reserved <= limits.shared_memory
        assert limits.warps * 32 >= 1024
