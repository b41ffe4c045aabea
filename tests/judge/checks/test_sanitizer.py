"""A candidate under compute-sanitizer. The tool needs a GPU, so a program with the same options replaces it. It starts
the real worker program in the real sandbox."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from kernwright.baselines.shipped import Shipped
from kernwright.core.errors import EnvironmentProblem, KernwrightError
from kernwright.judge.checks import sanitizer
from kernwright.judge.checks.sanitizer import SanitizerFinding, find_sanitizer, sanitize, watch
from kernwright.judge.device.cpu import CpuDevice
from kernwright.judge.protocol.orders import SideOrders
from kernwright.judge.worker import sanitizer_program as sanitized
from kernwright.tasks.candidate import load_candidate
from kernwright.tasks.task import load_task

TOOL = """#!/bin/sh
# --tool NAME --error-exitcode N --log-file FILE --print-limit N --show-backtrace WHOSE program...
tool=$2 status=$4 report=$6
shift 10
"$@" || exit $?
if [ "$tool" = racecheck ]; then
    printf '========= COMPUTE-SANITIZER\\n========= Error: Race reported between Write and Read\\n' > "$report"
    printf '========= RACECHECK SUMMARY: 1 hazard\\n' >> "$report"
    exit "$status"
fi
printf '========= COMPUTE-SANITIZER\\n========= ERROR SUMMARY: 0 errors\\n' > "$report"
"""
HONEST = "def axpy(x, w, *, alpha=2.0):\n    return alpha * x + w\n"
SLEEPY = "import time\n\ndef axpy(x, w, *, alpha=2.0):\n    time.sleep(60)\n"
NOSY = """
from pathlib import Path

def axpy(x, w, *, alpha=2.0):
    Path("/tmp/kernwright-was-here").write_text("outside")
    return alpha * x + w
"""


@pytest.fixture
def tool(tmp_path: Path) -> str:
    path = tmp_path / "compute-sanitizer"
    path.write_text(TOOL)
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def watched(
    tool: str, tiny_folder: Path, tmp_path: Path, private_tmp: Path, write_candidate: Callable[..., Path]
) -> Callable[..., SanitizerFinding]:
    task = load_task(tiny_folder)

    def watched(source: str, name: str = "memcheck", deadline_s: float = 120.0) -> SanitizerFinding:
        candidate = load_candidate(write_candidate(tmp_path / "candidate", source))
        rows = [row for row in task.rows if row.op == "axpy"][:1]
        return watch(tool, name, task, candidate, rows, CpuDevice(), deadline_s)  # type: ignore[arg-type]

    return watched


def test_a_clean_candidate_is_called_on_its_row_and_on_odd_sizes(watched: Callable[..., SanitizerFinding]) -> None:
    found = watched(HONEST)
    assert (found.outcome, found.reason) == ("clean", "")
    assert found.calls[0] == "axpy_small S=6 D=64", "the frozen size first"
    assert {"axpy_small S=5 D=64", "axpy_small S=7 D=64", "axpy_small S=1 D=64"} <= set(found.calls)
    assert len(set(found.calls)) == len(found.calls)


def test_tensors_lie_as_the_row_says(tiny_folder: Path) -> None:
    task = load_task(tiny_folder)
    (row,) = task.select("axpy_small")
    view = row.inputs["x"].model_copy(update={"strides": (70, 1), "offset": 3})
    seen = []

    def axpy(x: torch.Tensor, w: torch.Tensor, *, alpha: float = 2.0) -> torch.Tensor:
        seen.append((x.stride(), x.storage_offset(), x.untyped_storage().nbytes(), w.storage_offset()))
        return alpha * x + w

    shifted = row.model_copy(update={"inputs": row.inputs | {"x": view}})
    side = SideOrders(kind="candidate", language="python", op="axpy")
    sanitized._call(side, axpy, task.op_of(row), shifted, "cpu")
    assert seen == [((70, 1), 3, 4 * (3 + 5 * 70 + 64), 0)], "and not a byte more behind it"


def test_a_finding_of_the_tool_is_reported_in_its_own_words(watched: Callable[..., SanitizerFinding]) -> None:
    found = watched(HONEST, "racecheck")
    assert found.outcome == "errors"
    assert found.reason.startswith("Error: Race reported between Write and Read [")


def test_a_call_that_never_ends_is_ended(watched: Callable[..., SanitizerFinding]) -> None:
    found = watched(SLEEPY, deadline_s=4.0)
    assert found.outcome == "failed" and "within 4 s" in found.reason


def test_the_sandbox_is_in_force_here_too(watched: Callable[..., SanitizerFinding]) -> None:
    outside = Path("/tmp/kernwright-was-here")
    outside.unlink(missing_ok=True)
    found = watched(NOSY)
    assert found.outcome == "failed" and "Permission" in found.reason and not outside.exists()
    assert not found.calls, "a call that fails is no finding of the tool"


def test_the_ops_that_ship_are_called_and_a_reference_in_a_kernels_place_is_not_enough(
    tool: str, ops_task: Path, private_tmp: Path
) -> None:
    """On a CPU the first row has a kernel and the second has none."""
    task = load_task(ops_task)
    rows = [row for row in task.rows if row.id in ("normed", "scaled")]
    found = watch(tool, "memcheck", task, Shipped.of(task), rows, CpuDevice(), 120.0)  # type: ignore[arg-type]
    assert len(found.calls) > 1 and all(call.startswith("normed ") for call in found.calls)
    assert found.outcome == "failed" and found.reason.endswith("turn strict off [scaled S=24 D=256]")


def test_a_candidate_that_cannot_be_watched_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, quiet: Any
) -> None:
    with pytest.raises(KernwrightError, match="no tool 'leakcheck'"):
        sanitize("norm_scale_shift", tmp_path, None, ["leakcheck"], "cuda", quiet)
    monkeypatch.setattr(sanitizer.shutil, "which", lambda _: None)
    with pytest.raises(EnvironmentProblem, match="compute-sanitizer"):
        find_sanitizer()
