"""A candidate is identified by the bytes of its folder."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from kernwright.core.errors import BadFile
from kernwright.tasks.candidate import Candidate, load_candidate

SOURCE = "def axpy(x, w, *, alpha=2.0):\n    return alpha * x + w\n"


@pytest.fixture
def folder(tmp_path: Path, write_candidate: Callable[..., Path]) -> Path:
    return write_candidate(tmp_path / "mine", SOURCE)


def test_a_candidate_is_named_for_its_folder_and_knows_its_entry(folder: Path) -> None:
    candidate = load_candidate(folder)
    assert candidate.name == "mine"
    assert (candidate.entry_file, candidate.entry_function) == ("kernel.py", "axpy")
    assert set(candidate.sources) == {"candidate.toml", "kernel.py"}


@pytest.mark.parametrize(
    ("language", "more", "style"),
    [
        ("python", "", "returns"),
        ("python", 'style = "writes"', "writes"),
        ("cpp", "", "writes"),
        ("triton", "", "returns"),
    ],
)
def test_native_code_writes_and_python_returns_unless_told(
    tmp_path: Path, write_candidate: Callable[..., Path], language: str, more: str, style: str
) -> None:
    assert load_candidate(write_candidate(tmp_path / "c", SOURCE, language=language, more=more)).style == style


def test_the_digest_is_of_every_byte_and_every_name(folder: Path) -> None:
    first = load_candidate(folder).digest
    assert load_candidate(folder).digest == first
    (folder / "kernel.py").write_text(SOURCE + "#")
    assert load_candidate(folder).digest != first
    (folder / "kernel.py").write_text(SOURCE)
    assert load_candidate(folder).digest == first
    (folder / "table.bin").write_bytes(b"\x00")
    with_table = load_candidate(folder).digest
    assert with_table != first
    (folder / "table.bin").rename(folder / "other.bin")
    assert load_candidate(folder).digest not in (first, with_table)
    (folder / "sub").mkdir()
    (folder / "other.bin").rename(folder / "sub" / "other.bin")
    assert load_candidate(folder).digest not in (first, with_table)


def test_caches_are_no_part_of_a_candidate(folder: Path) -> None:
    first = load_candidate(folder).digest
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "kernel.pyc").write_bytes(b"x")
    assert load_candidate(folder).digest == first


def test_the_bytes_are_read_once(folder: Path) -> None:
    """The hashed bytes are the ones that run, even if the folder changes in between."""
    candidate = load_candidate(folder)
    digest = candidate.digest
    (folder / "kernel.py").write_text("changed")
    assert candidate.sources["kernel.py"].decode() == SOURCE
    assert candidate.digest == digest


def refused(folder: Path) -> str:
    with pytest.raises(BadFile) as caught:
        load_candidate(folder)
    assert caught.value.remedy
    return str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('op = "axpy"\n', "", "candidate.toml: op: Field required"),
        ('language = "python"\n', "", "candidate.toml: language: Field required"),
        ('entry = "kernel.py:axpy"\n', "", "candidate.toml: entry: Field required"),
        ('"python"', '"fortran"', "candidate.toml: language"),
        ('"kernel.py:axpy"', '"kernel.py"', "candidate.toml: entry"),
        ('"kernel.py:axpy"', '"kernel.py:not a name"', "candidate.toml: entry"),
        ('"kernel.py:axpy"', '"missing.py:axpy"', "entry: names 'missing.py'"),
        ('"kernel.py:axpy"', '"../mine/kernel.py:axpy"', "entry: names '../mine/kernel.py'"),
        ('"kernel.py:axpy"', '"/etc/passwd:axpy"', "entry: names '/etc/passwd'"),
        ('op = "axpy"', "op = 3", "candidate.toml: op"),
        ('op = "axpy"', 'op = "axpy"\nspeed = "fast"', "candidate.toml: speed"),
        ('op = "axpy"', 'op = "axpy"\nstyle = "inplace"', "candidate.toml: style"),
        ('op = "axpy"', "op = ", "candidate.toml: is not valid TOML"),
    ],
)
def test_a_bad_candidate_file_is_named_with_field_and_remedy(folder: Path, old: str, new: str, said: str) -> None:
    toml = folder / "candidate.toml"
    assert old in toml.read_text()
    toml.write_text(toml.read_text().replace(old, new, 1))
    assert said in re.sub(r"toml:\d+", "toml", refused(folder))


def test_a_missing_source_of_a_build_is_named_where_it_stands(folder: Path) -> None:
    toml = folder / "candidate.toml"
    toml.write_text(toml.read_text() + '[build]\nsources = ["helper.cc"]\n')
    message = refused(folder)
    assert "helper.cc" in message
    assert "candidate.toml:5: build.sources" in message


def test_an_unknown_build_flag_is_named(folder: Path) -> None:
    toml = folder / "candidate.toml"
    toml.write_text(toml.read_text() + "[build]\nflags = []\n")
    number = len(toml.read_text().splitlines())
    assert f"candidate.toml:{number}: build.flags" in refused(folder)


def test_all_problems_of_a_candidate_file_are_reported(folder: Path) -> None:
    toml = folder / "candidate.toml"
    toml.write_text('langage = "python"\nentry = "kernel.py"\n')
    message = refused(folder)
    for said in ("candidate.toml:1: langage", "did you mean language", "candidate.toml:2: entry", "op: Field required"):
        assert said in message
    toml.write_text('op = "axpy"\nlanguage = "cpp"\nentry = "a.cc:f"\n[build]\nsources = ["b.cc"]\n')
    message = refused(folder)
    assert "candidate.toml:3: entry: names 'a.cc'" in message and "candidate.toml:5: build.sources" in message


def test_no_folder_and_no_file(tmp_path: Path) -> None:
    assert "is not a folder" in refused(tmp_path / "none")
    (tmp_path / "my_kernel").mkdir()
    (tmp_path / "my_kernel" / "candidate.toml").touch()
    assert f"did you mean {tmp_path / 'my_kernel'}?" in refused(tmp_path / "my_kernle")
    (tmp_path / "empty").mkdir()
    assert "candidate.toml: does not exist" in refused(tmp_path / "empty")


@pytest.mark.parametrize("kind", ["file", "folder", "dangling"])
def test_links_are_refused(folder: Path, tmp_path: Path, kind: str) -> None:
    """Bytes outside the folder would not be covered by the digest."""
    target = tmp_path / "outside"
    if kind == "file":
        target.write_text("x")
    elif kind == "folder":
        target.mkdir()
        (target / "helper.py").write_text("x")
    (folder / "link").symlink_to(target)
    message = refused(folder)
    assert "link" in message and "plain files only" in message


def test_the_content_of_a_file_elsewhere_is_not_quoted(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.toml").write_text('language = "secret"')
    (folder / "candidate.toml").unlink()
    (folder / "candidate.toml").symlink_to(tmp_path / "secret.toml")
    message = refused(folder)
    assert "link" in message and "'secret'" not in message


@pytest.mark.parametrize("name", [b"\xff.py", b"a\nb.py", b"\x1b[2J.py"])
def test_a_name_that_no_record_can_hold_is_refused(folder: Path, name: bytes) -> None:
    (folder / os.fsdecode(name)).write_text("x")
    assert "rename it" in refused(folder)


def test_a_folder_of_build_products_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernwright.tasks.candidate.MOST_BYTES", 1000)
    (folder / "big.o").write_bytes(bytes(1001))
    assert "remove build products" in refused(folder)


def test_candidates_are_frozen(folder: Path) -> None:
    candidate: Candidate = load_candidate(folder)
    with pytest.raises(ValueError, match="frozen"):
        candidate.folder = Path("/")


def test_a_candidate_cannot_have_the_name_of_the_shipped_ops(folder: Path) -> None:
    """Also through a link: a candidate is named after its folder."""
    named = folder.rename(folder.with_name("kernwright"))
    linked = folder.with_name("mine")
    linked.symlink_to(named)
    for place in (named, linked):
        with pytest.raises(BadFile, match="stands for the ops that this package ships") as refused:
            load_candidate(place)
        assert "rename the folder" in str(refused.value.remedy)


@pytest.mark.parametrize("name", ["Kernwright", "kernwright ", "kern\u200bwright", "\u043aernwright"])
def test_a_name_that_could_be_taken_for_the_shipped_ops_is_refused(folder: Path, name: str) -> None:
    with pytest.raises(BadFile, match="stands for the ops that this package ships"):
        load_candidate(folder.rename(folder.with_name(name)))


@pytest.mark.parametrize("name", ["fast\x1b[2J", "fast\u202e", "fast\u200b"])
def test_a_name_with_characters_that_do_not_show_is_refused(folder: Path, name: str) -> None:
    with pytest.raises(BadFile, match="invisible or control characters") as refused:
        load_candidate(folder.rename(folder.with_name(name)))
    assert "\\" in refused.value.cause, "the name is shown escaped"


def test_markup_in_a_name_is_no_reason_to_refuse_it(folder: Path) -> None:
    assert load_candidate(folder.rename(folder.with_name("[b]kernwright"))).name == "[b]kernwright"
