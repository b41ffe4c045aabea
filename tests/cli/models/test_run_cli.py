"""kernwright run with a stand-in for sglang on PATH: presets, environment, gate, perf dumps and their provenance."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from diagnose.program_run.fake_sglang import install
from typer.testing import CliRunner

from kernwright.cli.main import app
from kernwright.core.errors import KernwrightError
from kernwright.diagnose.perf_dump.dump_files import read_dump
from kernwright.diagnose.presets.catalog import list_presets, load_preset
from kernwright.diagnose.program_run.engine_command import EngineOptions, sglang_command

VARIABLES = ("FLASHINFER_DISABLE_VERSION_CHECK", "SGLANG_DIFFUSION_SYNC_STAGE_PROFILING")


class Place:
    """A folder with the stand-in, in which `kernwright run` is called."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.saw, self.dumps = folder, folder / "saw.json", folder / "dumps"
        program = install(folder / "bin")
        dropped = (*VARIABLES, "HF_TOKEN", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "CUDA_VISIBLE_DEVICES")
        self.environment = {name: value for name, value in os.environ.items() if name not in dropped} | {
            "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}",
            "KERNWRIGHT_DUMPS": str(self.dumps),
            "SAW": str(self.saw),
            "HF_HOME": str(folder / "hf"),
        }

    def run(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "kernwright", "run", *words],
            capture_output=True,
            text=True,
            cwd=self.folder,
            env=self.environment | variables,
        )

    def seen(self) -> dict[str, Any]:
        held: dict[str, Any] = json.loads(self.saw.read_text())
        return held

    def filed(self) -> list[Path]:
        return sorted(self.dumps.rglob("*.json"))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_run_files_its_dump_with_provenance(place: Place) -> None:
    command = [
        "sglang",
        "generate",
        "--model-path",
        "lab/m",
        "--width=64",
        "--num_inference_steps",
        "2",
        "--prompt=a b",
    ]
    done = place.run("--label", "base", "--", *command, SAYS="not using diffusers backend; using sglang\n")
    assert done.returncode == 0 and done.stdout == "not using diffusers backend; using sglang\n", done.stderr
    (path,) = place.filed()
    assert path.parent == place.dumps / "sglang" / "base" and str(path) in done.stderr
    dump = read_dump(path)
    about = dump.kernwright
    assert dump.end_to_end_ms == 1234.5 and about is not None
    assert about.workload == {"model": "lab/m", "width": 64, "steps": 2, "prompt": "a b"}
    assert shlex.split(about.command)[: len(command)] == command and about.label == "base"
    assert about.synchronised and not about.profiled and about.machine["checks"]["disk"]["found"]
    assert about.libraries["python"] == ".".join(map(str, sys.version_info[:3]))
    seen = place.seen()
    assert seen["arguments"][:-2] == command[1:] and seen["arguments"][-2] == "--perf-dump-path"
    assert [seen["environment"][name] for name in VARIABLES] == ["1", "1"]
    assert "HF_HUB_OFFLINE" not in seen["environment"]


def test_the_user_has_the_last_word_on_the_environment_and_the_dump(place: Place) -> None:
    own = place.folder / "own.json"
    command = ("--", "sglang", "generate", f"--perf-dump-path={own}", "--profile")
    done = place.run("--offline", *command, SGLANG_DIFFUSION_SYNC_STAGE_PROFILING="0", STATUS="0")
    assert done.returncode == 0, done.stderr
    seen, dump = place.seen(), read_dump(place.filed()[0])
    assert seen["arguments"] == [*command[2:]] and own.is_file()
    assert seen["environment"]["SGLANG_DIFFUSION_SYNC_STAGE_PROFILING"] == "0"
    assert seen["environment"]["HF_HUB_OFFLINE"] == "1"
    assert dump.is_profiled and dump.kernwright is not None and not dump.kernwright.synchronised
    again = place.run(*command, WITHOUT_DUMP="1")
    assert again.returncode == 1 and str(own) in again.stderr and len(place.filed()) == 1, "an old dump does not count"
    failed = place.run(*command, STATUS="5")
    assert failed.returncode == 5 and len(place.filed()) == 1


def test_the_gate_discards_the_numbers_of_a_run(place: Place) -> None:
    own = place.folder / "own.json"
    words = ("--label", "base", "--", "sglang", "generate", f"--perf-dump-path={own}")
    says = "\nINFO \x1b[32mLoaded DIFFUSERS\x1b[0m pipeline: FluxPipeline\n"
    done = place.run(*words, SAYS=says, FILLER="300000", PIECE="100007", STAYS="300", CHILDREN="1", TO_STDERR="1")
    assert done.returncode == 1 and "Loaded DIFFUSERS pipeline: FluxPipeline" in done.stderr.splitlines()[-2]
    assert place.filed() == [] and not own.exists()
    late = place.run(*words, SAYS="done\nUsing diffusers backend", STATUS="0")
    assert late.returncode == 1 and place.filed() == [] and not own.exists(), "a program that has succeeded"


def test_a_run_without_its_expected_kernels_is_void(place: Place) -> None:
    expected = ("--expect-kernel", "norm_scale_shift", "--expect-kernel", "^triton_")
    command = ("--", "sglang", "generate", "--profile")
    assert place.run(*expected, *command, KERNELS="gemm norm_scale_shift<256>/triton_poi_fused_add").returncode == 0
    (path,) = place.filed()
    void = place.run("--expect-kernel", "silu", *command, KERNELS="gemm triton_poi_fused_add")
    assert void.returncode == 1 and "silu" in void.stderr and "gemm" in void.stderr and place.filed() == [path]
    other = place.run("--expect-kernel", "gemm", "--trace", "elsewhere", *command, KERNELS="gemm")
    assert other.returncode == 1 and "elsewhere" in other.stderr and place.filed() == [path]


def test_a_program_without_a_dump_is_timed_as_a_whole(place: Place) -> None:
    assert place.run("--label", "try", "--", "sh", "-c", "exit 0").returncode == 0
    (path,) = place.filed()
    dump = read_dump(path)
    assert path.parent == place.dumps / "sh" / "try" and dump.end_to_end_ms is not None and dump.steps == []
    assert place.run("--", "sh", "-c", "exit 4").returncode == 4
    strict = "import os, sys; sys.exit(os.environ['KERNWRIGHT_STRICT'] != '1'); "
    assert place.run("--strict", "--", sys.executable, "-c", strict).returncode == 0
    warns = "import warnings; from kernwright.runtime.choice.fallback import Fallback; warnings.warn('slow', Fallback)"
    assert place.run("--", sys.executable, "-c", warns).returncode == 0
    stopped = place.run("--strict", "--label", "try", "--", sys.executable, "-c", warns)
    assert stopped.returncode == 1 and "Fallback: slow" in stopped.stderr and place.filed() == [path]


def test_the_printed_command_of_a_preset_is_the_one_that_runs(place: Place) -> None:
    weights, quantized = place.folder / "my weights", place.folder / "fp8"
    weights.mkdir(), quantized.mkdir()
    (place.folder / "prompt.txt").write_text("it's $HOME\n")
    words = ["--preset", "flux", "--engine", "sglang", "--no-torch-compile", "--transformer-path", str(quantized)]
    words += ["--model-path", str(weights), "--prompt-path", "prompt.txt", "--offline", "--label", "fp8"]
    printed = place.run(*words, "--dry-run")
    assert printed.returncode == 0 and printed.stderr == "" and not place.saw.exists()
    subprocess.run(["sh", "-c", printed.stdout], env=place.environment, cwd=place.folder, check=True)
    pasted = place.seen()
    (dump,) = place.filed()
    assert pasted["arguments"][-1] == str(dump) and dump.parent == place.dumps / "flux" / "fp8"
    done = place.run(*words)
    assert done.returncode == 0, done.stderr
    seen = place.seen()
    assert seen["arguments"][:-1] == pasted["arguments"][:-1]
    shared = ("HF_HUB_OFFLINE", *VARIABLES)
    assert {name: pasted["environment"][name] for name in shared} == dict.fromkeys(shared, "1")
    assert {name: seen["environment"][name] for name in shared} == dict.fromkeys(shared, "1")
    for expected in (
        *("generate", "--backend=sglang", f"--model-path={weights}", f"--transformer-path={quantized}", "--seed=42"),
        *(
            f"--prompt-path={place.folder / 'prompt.txt'}",
            "--output-file-name=flux-fp8",
            "--width=1024",
            "--save-output",
        ),
    ):
        assert seen["arguments"].count(expected) == 1, expected
    assert "--warmup-mode request" in " ".join(seen["arguments"])
    assert not [word for word in seen["arguments"] if "torch-compile" in word or word.startswith("--prompt=")]
    about = read_dump(place.filed()[-1]).kernwright
    assert about is not None and (about.preset, about.workload["steps"], about.settings["engine"]) == (
        "flux",
        50,
        "sglang",
    )


def test_a_command_for_another_machine_is_shown_with_what_is_missing_here(place: Place) -> None:
    words = ("--preset", "flux", "--model-path", "/elsewhere/flux", "--torch-compile")
    shown = place.run(*words, "--dry-run", "--", "--num-gpus=1", "--tp-size=1")
    assert shown.returncode == 0 and "/elsewhere/flux" in shown.stderr
    assert "HF_HUB_OFFLINE=1" in shown.stdout and "--enable-torch-compile" in shown.stdout
    assert shown.stdout.index("--num-gpus=2") < shown.stdout.index("--num-gpus=1")
    refused = place.run(*words)
    assert refused.returncode == 2 and "/elsewhere/flux" in refused.stderr and not place.saw.exists()
    gated = place.run("--preset", "flux")
    assert gated.returncode == 2 and "HF_TOKEN" in gated.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("--preset", "fluxx", "--dry-run"),
        ("--preset", "flux", "--engine", "vllm", "--dry-run"),
        ("--preset", "flux", "--dry-run", "--", "--backend=diffusers"),
        ("--torch-compile", "--", "true"),
        ("--label", "a/b", "--", "true"),
        ("--expect-kernel", "gemm", "--", "true"),
        ("--expect-kernel", "gemm(", "--trace", "x.json", "--", "true"),
        (),
    ],
)
def test_wrong_usage_is_one_error(words: tuple[str, ...]) -> None:
    error = CliRunner().invoke(app, ["run", *words]).exception
    assert isinstance(error, KernwrightError) and error.remedy


def test_every_preset_has_a_command() -> None:
    for name, path in list_presets().items():
        preset = load_preset(path)
        if preset.sglang is None:
            continue
        words = sglang_command(name, preset, EngineOptions(), name).words
        assert "--backend=sglang" in words and f"--prompt={preset.request.prompt}" in words
        assert len(words) == len(set(words)), name
