"""The real compute-sanitizer on a GPU: clean on an honest kernel, and not on a kernel that reads beyond its input."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernwright.judge.checks.sanitizer import sanitize
from kernwright.ledger.ledger import Ledger

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

KERNEL = """
import torch
import triton
import triton.language as tl


@triton.jit
def _axpy(x, w, y, size, alpha, BEYOND: tl.constexpr, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < size
    value = tl.load(x + place + BEYOND, inside | (BEYOND > 0), 0.0)
    tl.store(y + place, alpha * value + tl.load(w + place, inside, 0.0), inside)


def axpy(x, w, *, alpha=2.0):
    y = torch.empty_like(x)
    wide = w.expand_as(x).contiguous()
    _axpy[(triton.cdiv(x.numel(), 1024),)](x, wide, y, x.numel(), alpha, BEYOND=BEYOND_BY, BLOCK=1024)
    return y
"""


@pytest.mark.parametrize(("beyond", "outcome"), [(0, "clean"), (1 << 20, "errors")])
def test_a_read_beyond_an_input_is_seen(
    beyond: int, outcome: str, tiny_folder: Path, tmp_path: Path, private_tmp: Path,
    write_candidate: Callable[..., Path], quiet: Any,
) -> None:  # fmt: skip
    if shutil.which("compute-sanitizer") is None:
        pytest.skip("compute-sanitizer is not here")
    folder = write_candidate(tmp_path / "axpy", KERNEL.replace("BEYOND_BY", str(beyond)), language="triton")
    (found,) = sanitize(
        str(tiny_folder), folder, "smoke", ["memcheck"], "cuda", quiet, tmp_path / "ledger", deadline_s=60.0
    )
    assert found.outcome == outcome, found
    (record,) = [r for r in Ledger(tmp_path / "ledger").all_records() if r.kind == "sanitizer"]
    assert record.body["findings"][0]["outcome"] == outcome
