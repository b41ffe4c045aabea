"""The ledger of checks that compiled kernels passed: a check is made again when anything that decides has changed."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import kernel_checks
import machine_code
import pytest
from kernel_checks import CHECKS, Check

from kernwright.runtime.library import Library
from kernwright.runtime.target import compiler, nvcc

needs_nvcc = pytest.mark.skipif(nvcc() is None, reason="there is no nvcc")


@pytest.fixture
def looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return the list of files that the rule of `check` looked at. The ledger is empty."""
    monkeypatch.setattr(kernel_checks, "LEDGER", tmp_path / "ledger.json")
    monkeypatch.delenv(kernel_checks.MODE_VARIABLE, raising=False)
    return []


@pytest.fixture
def check(tmp_path: Path, looked_at: list[Path]) -> Check:
    source = tmp_path / "own.cu"
    source.write_text('#include "own.cuh"\n__global__ void stores(int* y) { *y = kValue; }\n')
    (tmp_path / "own.cuh").write_text("constexpr int kValue = 1;\n")

    def holds(built: Path) -> None:
        looked_at.append(built)
        assert "kills" not in built.read_text()

    return Check(holds, Library("own", (source,)), "sm_90", "ptx")


def recorded(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as recording:
        recording.setenv(kernel_checks.MODE_VARIABLE, "record")
        kernel_checks.hold(check)


@needs_nvcc
def test_a_check_is_made_until_it_is_recorded_and_on_request(
    check: Check, looked_at: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    for times in (1, 2):
        with pytest.warns(UserWarning, match="holds own sm_90: not recorded"):
            kernel_checks.hold(check)
        assert len(looked_at) == times
    recorded(check, monkeypatch)
    kernel_checks.hold(check)
    assert len(looked_at) == 3
    monkeypatch.setenv(kernel_checks.MODE_VARIABLE, "all")
    kernel_checks.hold(check)
    assert len(looked_at) == 4


@needs_nvcc
def test_anything_that_decides_makes_a_new_check(check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded(check, monkeypatch)
    (source,) = check.library.sources
    source.write_text(source.read_text() + "\n// Another comment.\n")
    assert check.has_passed
    rules = tmp_path / "rules.py"
    rules.write_text(Path(machine_code.__file__).read_text())
    monkeypatch.setattr(machine_code, "__file__", str(rules))
    assert check.has_passed
    (tmp_path / "other.cuh").write_text("constexpr int kValue = 1;\n")  # the contents of own.cuh
    for path in (source, tmp_path / "own.cuh", rules):
        before = path.read_text()
        path.write_text(before + "\nint changed = 1;\n" if path != rules else before + "\nCHANGED = 1\n")
        assert not check.has_passed, path
        path.write_text(before)
    assert check.has_passed
    before = source.read_text()
    for changed in (before.replace("own.cuh", "other.cuh"), before.replace('#include "own.cuh"', "")):
        source.write_text(changed)
        assert not check.has_passed
    source.write_text(before)
    others = (
        replace(check, architecture="sm_80"), replace(check, kind="cubin"), replace(check, flags=("-w",)),
        replace(check, library=replace(check.library, macros=(("NDEBUG", "1"),))),
        replace(check, rule=machine_code.compiles),
    )  # fmt: skip
    assert not any(other.has_passed for other in others)
    with monkeypatch.context() as changing:
        changing.setattr(kernel_checks, "CUDA_FLAGS", ("-Xptxas=-O1",))
        assert not check.has_passed
    with monkeypatch.context() as changing:
        changing.setattr(kernel_checks, "MAKING", kernel_checks.MAKING[1:])
        assert not check.has_passed
    monkeypatch.setattr(kernel_checks, "_version", lambda: "another compiler")
    assert not check.has_passed and check.is_recorded


def test_a_form_that_changed_is_forgotten_for_every_compiler(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    def recorded_by(*builds: str) -> list[str]:
        for build in builds:
            monkeypatch.setattr(kernel_checks, "_version", lambda build=build: build)
            kernel_checks._record(check)
        return [name for name, digests in json.loads(kernel_checks.LEDGER.read_text()).items() if check.name in digests]

    assert recorded_by("one", "other") == ["one", "other"]
    (source,) = check.library.sources
    source.write_text(source.read_text().replace("stores", "keeps"))
    assert not check.is_recorded
    assert recorded_by("other") == ["other"]


@needs_nvcc
def test_changed_kernels_that_break_the_rule_are_found_and_not_recorded(
    check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded(check, monkeypatch)
    (source,) = check.library.sources
    source.write_text(source.read_text().replace("stores", "kills"))
    for mode in ("", "record", "all"):
        monkeypatch.setenv(kernel_checks.MODE_VARIABLE, mode)
        with pytest.raises(AssertionError):
            kernel_checks.hold(check)
    assert not check.has_passed


@pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler")
@pytest.mark.parametrize("defined", [True, False])
def test_a_call_of_an_undefined_function_is_found(defined: bool, tmp_path: Path) -> None:
    source, library = tmp_path / "calls.cc", tmp_path / "calls.so"
    source.write_text(f"void missing(){'{}' if defined else ';'}\nvoid calls() {{ missing(); }}\n")
    subprocess.run([str(compiler()), "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    if defined:
        machine_code.needs_nothing_undefined(library)
    else:
        with pytest.raises(AssertionError, match="missing"):
            machine_code.needs_nothing_undefined(library)


def test_the_ledger_names_no_check_that_is_gone() -> None:
    names = [check.name for check in CHECKS]
    assert len(set(names)) == len(names)
    assert {name for digests in kernel_checks.passed().values() for name in digests} <= set(names)


def test_every_check_is_recorded() -> None:
    left = ", ".join(check.name for check in CHECKS if not check.is_recorded)
    if left and nvcc() is None:
        pytest.skip(f"there is no nvcc to record {left}")
    assert not left, "record these checks as CONTRIBUTING.md says"
