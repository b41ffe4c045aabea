"""Kernwright's own files, for every place from which it can be imported."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernwright.bundle import own_files as own_files_module
from kernwright.packages.files import digest_of


def test_a_checkout_gives_its_tasks_and_constraints() -> None:
    files = own_files_module.own_files()
    assert files["kernwright/_constraints.txt"].name == "constraints.txt"
    assert "kernwright/_tasks/norm_scale_shift/task.toml" in files and "kernwright/judge/worker/native_loop.cc" in files
    assert not [name for name in files if "__pycache__" in name]


def test_a_bundled_kernwright_can_be_bundled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = own_files_module.own_files()
    for name, source in first.items():
        target = tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(source.read_bytes())
    # A checkout lies next to it, but this package was not imported from there.
    (tmp_path.parent / "pyproject.toml").write_text("")
    monkeypatch.setattr(own_files_module, "package_folder", lambda: tmp_path / "kernwright")
    assert digest_of(own_files_module.own_files()) == digest_of(first)
    constraints = own_files_module.constraints()
    assert constraints and constraints.is_relative_to(tmp_path)
