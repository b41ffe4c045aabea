"""docs/denoise.md: every figure comes from the record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from bench_denoise import REFERENCE, judge_ratios
from denoise_page import page

DOCS = Path(__file__).parents[2] / "docs"
HOTSPOT = {
    "name": "rope", "status": "covered, off", "share": 0.25, "fast_paths": ["sglang.rope"],
    "saving_ms": [4.5, 4.25, 4.75],
}  # fmt: skip


def record(regional_ms: float, finite: bool = True) -> dict[str, Any]:
    modes = {
        "eager": {"median_ms": 38.0, "device_ms": 36.0, "memory_bound_ms": 9.0, "first_call_s": 1.0},
        "regional": {"median_ms": regional_ms, "device_ms": 27.0, "memory_bound_ms": 3.0, "first_call_s": 24.0},
    }
    model = {
        "title": "FLUX.1", "layers": [4, 8], "modes": modes, "ratio": 38.0 / regional_ms,
        "inputs": {"hidden_states": [1, 4096, 64], "encoder_hidden_states": [1, 512, 4096]},
        "run": {"stages_ms": [["DecodingStage", 12.5]], "total_ms": 99.0, "finite": {"output": finite}},
    }  # fmt: skip
    savings = {"flux": {"device_ms": 36.0, "saving_ms": [9.0, 8.0, 10.0], "hotspots": [HOTSPOT]}}
    return {
        "models": {"flux": model}, "failed": {}, "savings": savings, "libraries": {"torch": "2.11.0"},
        "gpus": ["NVIDIA H200"], "date": "2026-11-18", "seconds": 120.0,
    }  # fmt: skip


def test_the_page_has_the_figures_of_the_record() -> None:
    text = page(record(30.0), json.loads(REFERENCE.read_text()))
    row = next(line for line in text.splitlines() if line.startswith("| FLUX.1, 4+8"))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[1:5] == ["4096 + 512", "38.00", "30.00", "1.267"]
    assert cells[6:] == ["24.0", "36.00", "25.0%", "27.00", "11.1%"]
    assert "| FLUX.1 | 1.333 | 1.341 | 1.056 | 1.099 | 1.111 | 1.152 |" in text, (
        "38/36 and 30/27 against the reference's"
    )
    assert "| FLUX.1 | 36.00 | 9.00 | 8.00 | 10.00 | 25.0% |" in text
    assert "| rope | covered, off | 25.0% | `sglang.rope` | 4.500 | 4.250 | 4.750 |" in text
    assert "outputs of all runs are finite" in text
    assert "NOT all finite" in page(record(30.0, finite=False), json.loads(REFERENCE.read_text()))


@pytest.mark.parametrize(("regional_ms", "status"), [(38.0 / 1.28, 0), (38.0 / 1.35, 1), (38.0 / 1.21, 1)])
def test_a_ratio_beyond_five_percent_of_the_reference_fails(regional_ms: float, status: int) -> None:
    assert judge_ratios(record(regional_ms)) == status


@pytest.mark.skipif(not (DOCS / "denoise.json").is_file(), reason="no record is committed")
def test_the_page_in_the_docs_is_that_of_its_record() -> None:
    held = json.loads((DOCS / "denoise.json").read_text())
    swap = json.loads((DOCS / "swap.json").read_text())
    assert (DOCS / "denoise.md").read_text() == page(held, json.loads(REFERENCE.read_text()), swap)
