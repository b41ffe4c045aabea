"""The store of compiled files: entries are complete or absent, also with several writers, and its size is bounded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernwright.judge.contest.compiled_store import VARIABLE, CompiledStore

FILES = {"triton/a/k.cubin": b"code", "inductor/b.py": b"text"}


@pytest.fixture
def store(tmp_path: Path) -> CompiledStore:
    return CompiledStore(tmp_path / "compiled")


def files_of(store: CompiledStore) -> list[Path]:
    return sorted((store.folder / "files").iterdir())


def test_an_entry_is_found_only_by_its_own_key(store: CompiledStore) -> None:
    store.keep("one", {"side": "compile"}, FILES)
    store.keep("one", {"side": "compile"}, {"triton/c": b"more", "inductor/b.py": b"newer"})
    assert store.take("one") == FILES | {"triton/c": b"more", "inductor/b.py": b"newer"}
    assert store.take("two") == {}
    assert store.folder.stat().st_mode & 0o077 == 0, "it is nobody else's to enter"


def test_a_changed_entry_is_refused_as_a_whole_and_made_again(store: CompiledStore) -> None:
    store.keep("one", {}, FILES)
    store.keep("two", {}, {"inductor/b.py": b"text"})
    for path in files_of(store):
        if path.read_bytes() == b"code":
            path.write_bytes(b"evil")
    assert store.take("one") == {}
    assert store.take("two") == {"inductor/b.py": b"text"}
    store.keep("one", {}, FILES)
    assert store.take("one") == FILES


@pytest.mark.parametrize("name", ["../../elsewhere", "/etc/elsewhere"])
def test_an_entry_with_a_link_to_elsewhere_is_ignored(store: CompiledStore, name: str) -> None:
    store.keep("one", {}, FILES)
    (entry,) = (store.folder / "entries").iterdir()
    listed = json.loads(entry.read_bytes())
    listed["files"][name] = next(iter(listed["files"].values()))
    entry.write_text(json.dumps(listed))
    assert store.take("one") == {}


def test_leftovers_of_a_killed_judge_are_removed(store: CompiledStore) -> None:
    store.keep("one", {}, FILES)
    left = [store.folder / folder / ".part-x" for folder in ("files", "entries")]
    for path in left:
        path.write_bytes(b"half")
    store.keep("two", {}, {"triton/d": b"d"})
    assert not any(path.exists() for path in left)
    assert store.take("one") == FILES


def test_the_least_recently_used_entry_is_removed_first(tmp_path: Path) -> None:
    store = CompiledStore(tmp_path, most_bytes=250)
    for age, key in enumerate(["old", "older"], start=1):
        store.keep(key, {}, {f"triton/{key}": key.encode() * 20})
        os.utime(store._place_of(key), (1e9 - age, 1e9 - age))
    store.take("older")  # marks the entry as just used
    store.keep("new", {}, {"triton/new": b"new" * 40})
    assert store.take("old") == {}
    assert store.take("older") and store.take("new")
    assert len(files_of(store)) == 2


def test_two_judges_at_once_lose_nothing(store: CompiledStore) -> None:
    program = """
import sys
from pathlib import Path
from kernwright.judge.contest.compiled_store import CompiledStore
for number in range(20):
    CompiledStore(Path(sys.argv[1])).keep("one", {}, {f"triton/{sys.argv[2]}{number}": sys.argv[2].encode()})
"""
    judges = [subprocess.Popen([sys.executable, "-c", program, store.folder, name]) for name in "ab"]
    assert [judge.wait() for judge in judges] == [0, 0]
    assert len(store.take("one")) == 40


def test_it_can_be_elsewhere_or_off(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(VARIABLE, "off")
    assert CompiledStore.here() is None
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    elsewhere = CompiledStore.here()
    assert elsewhere is not None and elsewhere.folder == tmp_path
