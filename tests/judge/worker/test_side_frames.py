"""The frames of a side's error: its own files only, relative to its folder."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from kernwright.judge.protocol.orders import SideOrders
from kernwright.judge.worker.entry import load
from kernwright.judge.worker.side_frames import MOST_FRAMES, _short, side_frames

HELPER = "import json\n\ndef parse(text):\n    return json.loads(text)\n"
KERNEL = "from helper import parse\n\ndef run(depth):\n    return run(depth - 1) if depth else parse('{')\n"


def frames_of(folder: Path, kernel: str, *arguments: Any) -> list[str]:
    (folder / "kernel.py").write_text(kernel)
    side = SideOrders(kind="candidate", language="python", folder=str(folder), file="kernel.py", function="run")
    with pytest.raises(Exception) as raised:
        load(side)(*arguments)
    return side_frames(raised.value, side)


@pytest.mark.parametrize("depth", [0, 50])
def test_the_last_frames_in_own_files_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, depth: int) -> None:
    monkeypatch.setattr("sys.path", [*sys.path])
    (tmp_path / "helper.py").write_text(HELPER)
    monkeypatch.delitem(sys.modules, "helper", raising=False)
    frames = frames_of(tmp_path, KERNEL, depth)
    assert frames[-1] == "helper.py:4 in parse: return json.loads(text)", "json's own frames are left out"
    assert frames[-2].startswith("kernel.py:4 in run: ") and len(frames) == min(depth + 2, MOST_FRAMES)


def test_a_syntax_error_has_a_place_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", [*sys.path])
    assert frames_of(tmp_path, "x = 1\ndef run(:\n") == ["kernel.py:2: def run(:"]


@pytest.mark.parametrize(
    ("signature", "name"),
    [
        ("run", "run"), ("<lambda>", "<lambda>"), ("void deeper(int64_t)", "void deeper"),
        ("void (anonymous namespace)::run(tvm::ffi::TensorView, double)", "void {anonymous}::run"),
    ],
)  # fmt: skip
def test_a_frame_of_cpp_has_no_parameters(signature: str, name: str) -> None:
    assert _short(signature) == name


def test_a_shipped_baseline_has_no_files_of_its_own() -> None:
    assert side_frames(ValueError("x"), SideOrders(kind="eager")) == []
