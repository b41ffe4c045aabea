"""Environments of compilers: the process's own environment stays as it is, and builds for other machines are
possible."""

from __future__ import annotations

import os
import platform
import subprocess
import threading
from pathlib import Path

import pytest

from kernwright.core.errors import KernwrightError
from kernwright.ops.builds import libraries
from kernwright.runtime.target import Target, compiler_for, nvcc
from kernwright.runtime.toolchain import ARCHITECTURE_VARIABLE, environment_for

ELSEWHERE = "x86_64" if platform.machine() == "aarch64" else "aarch64"


def test_builds_for_one_architecture_run_side_by_side_and_those_for_another_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """tvm-ffi reads the architecture from the environment while it builds, so the environment must not change
    meanwhile."""
    monkeypatch.setenv(ARCHITECTURE_VARIABLE, "7.5")
    together = threading.Barrier(2, timeout=60)  # breaks if two builds for one architecture never overlap
    seen: list[tuple[str, str]] = []

    def build(target: str) -> None:
        with environment_for(Target(target)):
            if target == "sm_90":
                together.wait()
            seen.append((target, os.environ[ARCHITECTURE_VARIABLE]))

    threads = [threading.Thread(target=build, args=(target,)) for target in ("sm_90", "sm_80", "sm_90", "sm_100")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert sorted(seen) == [("sm_100", "10.0"), ("sm_80", "8.0"), ("sm_90", "9.0"), ("sm_90", "9.0")]
    assert os.environ[ARCHITECTURE_VARIABLE] == "7.5"


def test_a_build_for_another_kind_of_machine_has_another_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "mine")
    monkeypatch.setattr("kernwright.runtime.toolchain.compiler_for", lambda host: f"/for/{host}")
    with environment_for(Target("sm_90", ELSEWHERE)):
        assert os.environ["CXX"] == f"/for/{ELSEWHERE}"
    with environment_for(Target("sm_90")):
        assert os.environ["CXX"] == "mine"


def test_a_library_says_what_kind_of_machine_it_is_for() -> None:
    own = next(iter(libraries(Target("sm_90"))))
    here, there = own.file_name(Target("sm_90")), own.file_name(Target("sm_90", ELSEWHERE))
    assert here != there and here == own.file_name(Target.named("sm_90", platform.machine()))


def test_a_missing_compiler_for_another_machine_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernwright.runtime.target.compiler_for", lambda host: None)
    assert Target("sm_90", "riscv64").missing == "there is no C++ compiler for riscv64 (riscv64-linux-gnu-g++)"
    with pytest.raises(KernwrightError, match="CPU kernels cannot be built for"):
        Target.named("cpu", ELSEWHERE)


@pytest.mark.skipif(nvcc() is None or compiler_for(ELSEWHERE) is None, reason="no compiler for another kind of machine")
def test_a_build_for_another_machine_is_of_its_kind(tmp_path: Path) -> None:
    target = Target("sm_90", ELSEWHERE)
    (own,) = [library for library in libraries(target) if library.name == "dual_modulate_bf16"]
    built = own.build(target, tmp_path)
    told = subprocess.run(["readelf", "-hd", str(built)], capture_output=True, text=True, check=True).stdout
    assert {"x86_64": "X86-64", "aarch64": "AArch64"}[ELSEWHERE] in told
    assert "[libtvm_ffi.so]" in told and "[libcudart.so." in told
    assert own.found_in(tmp_path, target) == built
