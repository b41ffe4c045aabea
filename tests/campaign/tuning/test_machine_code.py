"""Candidates are compiled, not run: equal machine code is found, and reports of compilers exclude configurations."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kernwright.campaign.tuning.limits import limits_of
from kernwright.campaign.tuning.machine_code import CodeCompiler, KernelReport, MachineCode, missing_compiler
from kernwright.campaign.tuning.space import Space
from kernwright.tasks.candidate import load_candidate

SOURCE = """
// {remark}
#define UNROLL {unroll}
#define UNUSED {unused}
float data[64];
float sum() {{
  float found = 0;
  for (int i = 0; i + UNROLL <= 64; i += UNROLL)
    for (int j = 0; j < UNROLL; ++j) found += data[i + j] * UNROLL;
  return found;
}}
"""
CUDA = """
__global__ void __launch_bounds__(THREADS) scaled(float* y) { y[blockIdx.x * THREADS + threadIdx.x] *= FACTOR; }
void run(float* y) { scaled<<<SIZE / THREADS, THREADS>>>(y); }
"""


@pytest.mark.skipif(shutil.which("c++") is None, reason="needs a C++ compiler")
def test_machine_code_tells_equal_candidates_from_different_ones(
    tmp_path: Path, write_candidate: Callable[..., Path]
) -> None:
    compiler = CodeCompiler("host", tmp_path / "compiled")

    def code(name: str, **values: object) -> MachineCode:
        text = SOURCE.format(**({"remark": "", "unroll": 4, "unused": 1} | values))
        return compiler.compile(load_candidate(write_candidate(tmp_path / name, text, language="cpp")))

    first = code("a")
    assert first.digest and not first.problem
    assert code("b", remark="other words", unused=2).digest == first.digest
    assert code("c", unroll=8).digest not in ("", first.digest)
    broken = code("d", unroll="four")
    assert not broken.digest and "error" in broken.problem and "kernel.cc" in broken.problem
    assert len(list((tmp_path / "compiled").iterdir())) == 4
    for kept in (tmp_path / "compiled").iterdir():
        kept.write_text(MachineCode(digest="remembered").model_dump_json())
    assert code("a").digest == "remembered"


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_kernels_are_reported_and_launches_are_part_of_the_machine_code(tmp_path: Path) -> None:
    def code(**values: int) -> MachineCode:
        folder = tmp_path / "-".join(f"{name}{value}" for name, value in values.items())
        folder.mkdir()
        (folder / "candidate.toml").write_text('op = "axpy"\nlanguage = "cuda"\nentry = "kernel.cu:run"\n')
        given = {"THREADS": 128, "FACTOR": 2, "SIZE": 4096} | values
        (folder / "kernel.cu").write_text("".join(f"#define {n} {v}\n" for n, v in given.items()) + CUDA)
        return CodeCompiler("sm_90").compile(load_candidate(folder))

    first = code(SIZE=4096)
    (kernel,) = first.kernels
    assert "scaled" in kernel.name and 0 < kernel.registers < 64
    assert code(FACTOR=3).digest != first.digest, "only the device's code differs"
    assert code(SIZE=8192).digest != first.digest, "only the host's code differs"


def test_python_is_compared_by_its_source(tmp_path: Path, write_candidate: Callable[..., Path]) -> None:
    def digest(name: str, text: str) -> str:
        return CodeCompiler("sm_90").compile(load_candidate(write_candidate(tmp_path / name, text))).digest

    assert digest("a", "ROWS = 1  # one\n") == digest("b", "ROWS  =  1\n") != digest("c", "ROWS = 2\n")


def test_a_missing_compiler_is_named(
    tmp_path: Path, write_candidate: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    candidate = load_candidate(write_candidate(tmp_path / "a", "", language="cpp"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert missing_compiler(candidate) == "c++"
    assert missing_compiler(load_candidate(write_candidate(tmp_path / "b", ""))) is None


SPACE = Space.model_validate(
    {
        "parameters": {"THREADS": {"choices": [256, 1024, 2048], "default": 256}},
        "launch": {"threads": "THREADS", "values_per_thread": "THREADS // 8", "shared_bytes": "THREADS * 200"},
    }
)


def test_the_hardware_excludes_configurations_before_and_after_they_are_compiled() -> None:
    limits, cpu = limits_of("sm_90"), limits_of(None)
    assert limits.problem_before(SPACE, {"THREADS": 256}) is None
    assert limits.problem_before(SPACE, {"THREADS": 2048}) == "2048 threads a block; a block has 1 to 1024"
    assert cpu.problem_before(SPACE, {"THREADS": 2048}) is None
    zero = Space.model_validate(
        {"parameters": {"N": {"choices": [1, 0], "default": 1}}, "launch": {"threads": "256 // N"}}
    )
    assert "cannot be computed" in str(limits.problem_before(zero, {"N": 0}))
    thin, thick = KernelReport(name="k", registers=32), KernelReport(name="k", registers=128)
    spilling = KernelReport(name="k", registers=255, spill_stores=16, spill_loads=8)

    def problem(threads: int, kernel: KernelReport) -> str | None:
        return limits.problem_after(SPACE, {"THREADS": threads}, MachineCode(digest="a", kernels=(kernel,)))

    assert problem(256, thin) is None and problem(1024, thin) is None
    assert problem(256, spilling) == "spills 24 bytes of registers in k"
    found = problem(1024, thick)
    assert found is not None and found.startswith("no block fits on an SM: 1024 threads with 128 registers each")
