"""kernwright candidate new: candidates are correct by the judge's own check, for every language that runs on a CPU."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kernwright.cli.main import app
from kernwright.core.errors import ExistsAlready, KernwrightError
from kernwright.core.registry import shipped_ops
from kernwright.scaffold.candidate.candidate_folder import LANGUAGES, new_candidate
from kernwright.scaffold.candidate.traced_op import NotPerRow

PER_ROW = {
    "norm_scale_shift", "residual_norm_scale_shift", "norm_tanh_mul_add", "norm_tanh_mul_add_norm_scale", "layer_norm",
    "rms_norm", "add_norm", "fused_add_rms_norm_", "rms_modulate", "dual_modulate", "ernie_norm_modulate",
    "ernie_residual_norm_modulate", "ernie_residual_gate", "scale_shift", "residual_gate", "broadcast_add",
}  # fmt: skip
# task, op, language and row: one reduction and one elementwise op per language, an op in place, one with exact bits,
# and one of those for which no kernel can be generated.
JUDGED = [
    ("norm_scale_shift", "norm_scale_shift", "cpp", "smoke_plain_s19_d3072_row-bf16"),
    ("fuse_scale_shift", "scale_shift", "triton", "smoke_gate_qwen_s19"),
    ("add_norm", "fused_add_rms_norm_", "cpp", "smoke_in_place"),
    ("rotary_embedding", "rotary", "python", "smoke_std_hunyuan_t27030"),
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
    run("candidate", "new", "--op", op, "--language", language, "own")
    run("judge", task, "--candidate", "own", "--quick", "--rows", row, "--rounds", "1", "--json", "verdict.json")
    verdict = json.loads((tmp_path / "verdict.json").read_text())
    assert verdict["rows"]
    for each in verdict["rows"]:
        assert each["verdict"] not in ("incorrect", "failed", "tampered"), each["reasons"]
        assert each["cases"] > 5


@pytest.mark.slow
def test_an_op_of_a_users_own_task_gets_a_correct_candidate(
    tmp_path: Path, private_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = shutil.copytree(Path(__file__).parents[2] / "examples" / "own_op", tmp_path / "own_op")
    monkeypatch.chdir(folder)
    capture = ["capture", "--call", "model.py:gated_relu2", "--out", "calls.jsonl", "--"]
    subprocess.run(
        [sys.executable, "-m", "kernwright", *capture, sys.executable, "model.py"], check=True, capture_output=True
    )
    run("task", "new", "gated_relu2", "--from", "calls.jsonl", "--draft-op", "model.py:gated_relu2")
    run("candidate", "new", "--op", "gated_relu2", "--language", "cpp", "mine")
    run("judge", "gated_relu2", "--candidate", "mine", "--quick", "--rounds", "1", "--json", "verdict.json")
    verdict = json.loads((folder / "verdict.json").read_text())
    assert verdict["verdict"] in ("faster", "same", "slower", "inconclusive"), verdict["reasons"]


@pytest.mark.parametrize("op", shipped_ops())
def test_a_kernel_is_generated_or_refused(op: str) -> None:
    for language in ("cpp", "cuda", "triton"):
        if op in PER_ROW:
            files = new_candidate(shipped_ops()[op], [], language).files
            assert "kernel" in "".join(files)
            if language == "triton":
                ast.parse(files["kernel.py"])
        else:
            with pytest.raises(NotPerRow, match=op):
                new_candidate(shipped_ops()[op], [], language)


@pytest.mark.parametrize("op", shipped_ops())
@pytest.mark.parametrize("language", ["python", "cutedsl"])
def test_the_eager_chain_of_any_op_is_a_file_of_its_own(op: str, language: str, tmp_path: Path) -> None:
    text = new_candidate(shipped_ops()[op], [], language).files["kernel.py"]
    assert "kernwright" not in text.partition('"""\n')[2], "it imports nothing of ours"
    space: dict[str, object] = {"__name__": "own"}
    exec(compile(text, "kernel.py", "exec", dont_inherit=True), space)  # CuTe-DSL may be missing
    assert callable(space[op])


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_a_cuda_candidate_compiles(tmp_path: Path) -> None:
    from tvm_ffi import libinfo

    new_candidate(shipped_ops()["fused_add_rms_norm_"], [], "cuda").write(tmp_path / "own")
    include = [f"-I{libinfo.find_include_path()}", f"-I{libinfo.find_dlpack_include_path()}"]
    command = ["nvcc", "-std=c++17", "-arch=sm_90", "-c", str(tmp_path / "own" / "kernel.cu"), *include]
    done = subprocess.run([*command, "-o", str(tmp_path / "kernel.o")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "error" not in done.stderr


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
    assert LANGUAGES[:4] == ("triton", "cuda", "cpp", "cutedsl")
