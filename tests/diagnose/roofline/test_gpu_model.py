"""The table of GPUs: names as drivers report them, and numbers that must agree with each other."""

from __future__ import annotations

import pytest

from kernwright.diagnose.roofline.gpu_model import gpu_models, gpu_named, sm_limits

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
    assert all(model.copy_from for model in gpu_models() if model.copy_bandwidth)


def test_a_block_fits_on_an_sm() -> None:
    for limits in sm_limits().values():
        assert limits.shared_memory_block + limits.shared_memory_reserved <= limits.shared_memory
        assert limits.warps * 32 >= 1024
