"""kernwright candidate new: candidates are correct by the judge's own check, and wrong requests say what to do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kernwright.cli.main import app
from kernwright.core.errors import ExistsAlready, KernwrightError
from kernwright.scaffold.candidate.traced_op import NotPerRow

# task, op, language and row: a reduction in place, and an elementwise op with exact bits
JUDGED = [
    ("fuse_scale_shift", "scale_shift", "triton", "smoke_gate_qwen_s19"),
    ("add_norm", "fused_add_rms_norm_", "cpp", "smoke_in_place"),
]


def run(*words: str) -> str:
    result = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert result.exit_code in (0, 1), result.output
    return result.stdout


@pytest.mark.slow
@pytest.mark.parametrize(("task", "op", "language", "row"), JUDGED)
def test_the_judge_finds_a_new_candidate_correct(
    task: str, op: str, language: str, row: str, tmp_path: Path, private_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = run("candidate", "new", "--op", op, "--language", language, "own")
    assert f"kernwright judge {task} --candidate own --quick" in text and "the tuner searches own/space.toml" in text
    assert ("--from own --device cuda" in text) == (language != "cpp"), "a campaign cannot time Triton on a CPU"
    run("judge", task, "--candidate", "own", "--quick", "--rows", row, "--rounds", "1", "--json", "verdict.json")
    verdict = json.loads((tmp_path / "verdict.json").read_text())
    assert verdict["rows"]
    for each in verdict["rows"]:
        assert each["verdict"] not in ("incorrect", "failed", "tampered"), each["reasons"]
        assert each["cases"] > 5


def test_wrong_requests_say_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(KernwrightError, match="did you mean norm_scale_shift"):
        run("candidate", "new", "--op", "norm_scale_shit", "--language", "cpp")
    with pytest.raises(KernwrightError, match="did you mean triton"):
        run("candidate", "new", "--op", "rms_norm", "--language", "tritn")
    with pytest.raises(NotPerRow, match="rotary"):
        run("candidate", "new", "--op", "rotary", "--language", "cpp", "own")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "own").mkdir()
    with pytest.raises(ExistsAlready):
        run("candidate", "new", "--op", "rms_norm", "--language", "cpp", "own")
