"""The digest of a shipped op changes with all code that a call of the op runs, and with nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kernwright.baselines import shipped
from kernwright.baselines.shipped import Shipped
from kernwright.runtime.triton.tuning import Entry, Place, TuningTable

Digests = tuple[str, ...]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of the package that a test may change."""
    copy = tmp_path / "kernwright"
    for part in shipped.RUN_BY_CALLS:
        shutil.copytree(shipped.PACKAGE / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(shipped, "PACKAGE", copy)
    return copy


@pytest.fixture(scope="module")
def before() -> Digests:
    """Return the digests of the package itself."""
    return digests()


def digests() -> Digests:
    return tuple(Shipped((op,)).digest for op in ("norm_scale_shift", "rms_norm", "scale_shift"))


@pytest.mark.parametrize(
    ("file", "added", "changes"),
    [
        # Plain norms are compiled from this file too.
        ("ops/norm_modulation/kernel.cu", "int more;", (True, True, False)),
        ("ops/norm_modulation/triton.py", "more = 1", (True, True, False)),
        ("ops/norm_modulation/cpu.cc", "// measured later", (False, False, False)),
        ("ops/plain_norm/family.py", "more = 1", (False, True, False)),
        ("ops/modulation/policy.h", "int more;", (False, False, True)),
        ("ops/modulation/triton.py", "# measured later", (False, False, False)),
        ("ops/_shared/native/elements.cuh", "int more;", (True, True, True)),
        ("core/norms.py", "more = 1", (True, True, False)),
        ("core/digest.py", "more = 1", (False, False, False)),
        ("runtime/dispatch.py", "more = 1", (True, True, True)),
        ("runtime/library.py", "more = 1", (True, True, True)),
        ("ops/builds.py", "more = 1", (False, False, False)),
        ("ops/__init__.py", "more = 1", (False, False, False)),
    ],
)
def test_a_change_makes_the_right_ops_stale(
    package: Path, before: Digests, file: str, added: str, changes: tuple[bool, ...]
) -> None:
    path = package / file
    path.write_text(f"{path.read_text()}\n{added}\n")
    assert tuple(a != b for a, b in zip(before, digests(), strict=True)) == changes


def test_a_configuration_counts_for_its_ops_and_its_measured_times_do_not(package: Path, before: Digests) -> None:
    def ship(us: float, rows: int = 2) -> Digests:
        entry = Entry(op="rms_norm", width=96, element_bytes=2, tokens="few", rows=rows, block=128, warps=4, us=us)
        TuningTable(place=Place(device="any"), entries=(entry,)).write(package / "ops" / "tuned" / "any.json")
        return digests()

    measured = ship(1.0)
    assert [a != b for a, b in zip(before, measured, strict=True)] == [False, True, False]
    assert ship(2.0) == measured != ship(2.0, rows=4)


def test_a_new_file_of_the_family_counts(package: Path, before: Digests) -> None:
    (package / "ops" / "plain_norm" / "table.json").write_text("{}")
    assert [a != b for a, b in zip(before, digests(), strict=True)] == [False, True, False]
