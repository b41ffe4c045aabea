"""The recorder of a run: stages, steps, and what the dump says about gradients."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from kernwright.diagnose.perf_dump.provenance import UNKNOWN_COMMIT, commit_hash
from kernwright.diagnose.perf_dump.recorder import DumpRecorder


def test_stages_and_steps_are_timed_and_repeats_kept() -> None:
    recorder = DumpRecorder()
    with recorder.run(), torch.no_grad():
        with recorder.stage("DenoisingStage"):
            for _ in range(3):
                with recorder.denoise_step():
                    time.sleep(0.002)
        for _ in range(2):
            with recorder.stage("DecodingStage"):
                time.sleep(0.001)
    dump = recorder.dump()
    assert [stage.name for stage in dump.steps] == ["DenoisingStage", "DecodingStage", "DecodingStage"]
    assert [step.step for step in dump.denoise_steps_ms] == [0, 1, 2]
    assert all(step.duration_ms >= 2 for step in dump.denoise_steps_ms)
    assert dump.total_duration_ms is not None
    assert dump.total_duration_ms >= sum(stage.duration_ms for stage in dump.steps) >= 8
    assert dump.kernwright is not None
    assert dump.kernwright.gradients is False
    assert dump.kernwright.libraries["torch"] == torch.__version__


def test_a_step_under_autograd_is_recorded_as_such() -> None:
    recorder = DumpRecorder()
    with recorder.denoise_step():
        pass
    with torch.inference_mode(), recorder.denoise_step():
        pass
    provenance = recorder.dump().kernwright
    assert provenance is not None
    assert provenance.gradients is True


def test_a_stage_that_raises_leaves_no_time() -> None:
    recorder = DumpRecorder()
    with pytest.raises(ValueError, match="x"), recorder.run(), recorder.stage("DenoisingStage"):
        raise ValueError("x")
    dump = recorder.dump()
    assert dump.steps == []
    assert dump.total_duration_ms is None


def test_the_commit_is_that_of_the_sources(tmp_path: Path) -> None:
    head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
    assert commit_hash().removesuffix("-dirty") == head or not head
    assert commit_hash(tmp_path) == UNKNOWN_COMMIT


def test_reading_dumps_needs_no_torch() -> None:
    code = "import sys, kernwright.diagnose.perf_dump.dump_files as f; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
