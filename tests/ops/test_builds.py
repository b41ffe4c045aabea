"""Builds that tests share: the same content is built once, and anything that changes it makes another build."""

from __future__ import annotations

from pathlib import Path

import builds
import pytest

from kernwright.core.runtime_interface import checksum_file
from kernwright.runtime import library
from kernwright.runtime.library import Library
from kernwright.runtime.target import Target

CPU = Target("cpu")


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return the list of builds, which write a file instead of compiling."""
    made: list[Path] = []

    def build(own: Library, target: Target, folder: Path) -> Path:
        path = folder / own.file_name(target)
        path.write_bytes(b"library")
        checksum_file(path).write_text(library._checksum(path))
        made.append(path)
        return path

    monkeypatch.setattr(Library, "build", build)
    monkeypatch.setattr(builds, "shared_folder", lambda: tmp_path / "shared")
    return made


def test_a_library_is_built_again_when_a_header_or_a_flag_changes(
    tmp_path: Path, built: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, header, deeper = (tmp_path / name for name in ("own.cc", "first.h", "deeper.cuh"))
    source.write_text('#include "first.h"\n')
    header.write_text("#include <deeper.cuh>\n")
    deeper.write_text("int value = 1;\n")
    own = Library("own", (source,))
    assert builds.with_included((source,)) == (source, header, deeper)
    assert builds.shared_library(own, CPU) == builds.shared_library(own, CPU)
    assert len(built) == 1
    deeper.write_text("int value = 2;\n")
    builds.shared_library(own, CPU)
    assert len(built) == 2
    monkeypatch.setattr(library, "CPU_FLAGS", ("-O0",))
    builds.shared_library(own, CPU)
    assert len(set(built)) == 3


def test_an_incomplete_build_is_made_again(tmp_path: Path, built: list[Path]) -> None:
    source = tmp_path / "own.cc"
    source.write_text("")
    builds.shared_library(Library("own", (source,)), CPU).write_bytes(b"libr")
    builds.shared_library(Library("own", (source,)), CPU)
    assert len(built) == 2
