"""The provenance of a verdict: enough to repeat it or to doubt it."""

from __future__ import annotations

import hashlib
import importlib.metadata
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from kernwright.judge.record.provenance import Provenance, command_line, judge_digest, library_versions, source_hashes
from kernwright.tasks.candidate import load_candidate
from kernwright.tasks.task import load_task


def test_versions_are_those_installed() -> None:
    versions = library_versions()
    assert versions["torch"] == importlib.metadata.version("torch")
    assert versions["python"].count(".") == 2
    assert {"numpy", "pydantic"} <= set(versions)


def test_libraries_that_are_not_there_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernwright.judge.record.provenance.LIBRARIES", ("torch", "no-such-library"))
    assert set(library_versions()) == {"python", "torch"}


def test_every_file_and_every_op_is_hashed(
    tiny_folder: Path, tmp_path: Path, write_candidate: Callable[..., Path]
) -> None:
    task = load_task(tiny_folder)
    candidate = load_candidate(write_candidate(tmp_path / "c", "def axpy(): ..."))
    hashes = source_hashes(task, candidate)
    assert hashes["kernel.py"] == hashlib.sha256(b"def axpy(): ...").hexdigest()
    assert hashes["op axpy"] == task.ops["axpy"].digest
    assert set(hashes) == {"op axpy", "op accumulate", "op negate", "kernel.py", "candidate.toml"}
    assert set(source_hashes(task, None)) == {"op axpy", "op accumulate", "op negate"}


def test_the_judges_digest_is_of_all_its_code(tmp_path: Path) -> None:
    def digest_with(path: str, text: str) -> str:
        (tmp_path / path).write_text(text)
        judge_digest.cache_clear()
        return judge_digest(tmp_path)

    (tmp_path / "cuda").mkdir()
    first = digest_with("cuda/lane.py", "PIECES = 64\n")
    second = digest_with("cuda/lane.py", "PIECES = 1\n")
    assert second != first
    assert digest_with("block_loop.c", "#define HEADER 5\n") != second
    judge_digest.cache_clear()


def test_the_command_can_be_pasted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["/somewhere/kernwright", "judge", "tiny", "--rows", "a b*"])
    assert shlex.split(command_line()) == ["kernwright", "judge", "tiny", "--rows", "a b*"]


def test_an_unknown_field_is_refused() -> None:
    fields = {"command": "", "seed": 1, "host": "", "hardware": {}, "libraries": {}, "policy": {}, "sources": {}}
    assert Provenance(**fields, device="cpu").seed == 1
    with pytest.raises(ValueError, match="extra"):
        Provenance(**fields, device="cpu", weather="fine")
