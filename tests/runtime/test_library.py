"""Native libraries: built once, found again, rebuilt if broken, and used on machines without a compiler."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from kernwright.core.errors import EnvironmentProblem
from kernwright.core.runtime_interface import BUILDS_VARIABLE, checksum_file
from kernwright.runtime.library import CACHE_VARIABLE, Library, NotBuilt, cache_folder, is_whole
from kernwright.runtime.target import Target, compiler

CPU = Target("cpu")
# The C header alone, because the C++ headers of tvm-ffi take two seconds to read.
SOURCE = """
#include <tvm/ffi/c_api.h>
#include "number.h"
extern "C" TVM_FFI_DLL_EXPORT int __tvm_ffi_answer(void*, const TVMFFIAny*, int32_t, TVMFFIAny* result) {
  result->type_index = kTVMFFIInt;
  result->v_int64 = KERNWRIGHT_NUMBER + NUMBER;
  return 0;
}
"""
needs_compiler = pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler")


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, ...]:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.delenv(BUILDS_VARIABLE, raising=False)
    (tmp_path / "answer.cc").write_text(SOURCE)
    (tmp_path / "number.h").write_text("#define NUMBER 2\n")
    return tmp_path / "answer.cc", tmp_path / "number.h"


def small(sources: tuple[Path, ...], number: int = 40) -> Library:
    return Library("answer", sources, (("KERNWRIGHT_NUMBER", str(number)),))


@needs_compiler
def test_it_is_built_once_and_rebuilt_when_it_is_broken(
    sources: tuple[Path, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    own = small(sources)
    assert own.find(CPU) is None
    assert own.load(CPU).answer() == 42
    path = own.find(CPU)
    assert path is not None and path.parent == cache_folder()
    assert sorted(p.name for p in path.parent.iterdir() if not p.name.startswith(".")) == [
        path.name, path.name + ".sha256",
    ]  # fmt: skip
    monkeypatch.setattr(Library, "_compile", lambda *_: pytest.fail("was built again"))
    assert own.need(CPU) == path
    monkeypatch.undo()

    monkeypatch.setenv(CACHE_VARIABLE, str(path.parent.parent))
    beginning = path.read_bytes()[:1000]
    path.unlink()  # this process has mapped the old file and would crash
    path.write_bytes(beginning)
    assert own.find(CPU) is None
    assert is_whole(own.need(CPU))


@needs_compiler
def test_a_library_built_ahead_is_used_without_a_compiler(
    sources: tuple[Path, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = small(sources)
    monkeypatch.setattr("kernwright.runtime.target.compiler", lambda: None)
    assert own.unavailable(CPU) == "there is no C++ compiler, and answer was not built ahead for cpu"
    with pytest.raises(EnvironmentProblem, match="answer cannot be built for cpu: there is no C\\+\\+ compiler"):
        own.need(CPU)
    monkeypatch.undo()

    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    ahead = own.build(CPU, tmp_path / "ahead")
    monkeypatch.setattr("kernwright.runtime.target.compiler", lambda: None)
    monkeypatch.setenv(BUILDS_VARIABLE, f"{tmp_path / 'nothing'}:{tmp_path / 'ahead'}")
    assert own.unavailable(CPU) is None
    assert own.need(CPU) == ahead
    assert own.load(CPU).answer() == 42


@needs_compiler
def test_a_library_built_ahead_that_does_not_fit_is_named(
    sources: tuple[Path, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    small(sources, 41).build(CPU, tmp_path / "ahead")
    monkeypatch.setenv(BUILDS_VARIABLE, str(tmp_path / "ahead"))
    with pytest.warns(UserWarning, match=f"the libraries in {tmp_path / 'ahead'} for cpu do not match"):
        assert small(sources).need(CPU).parent == cache_folder()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        small(sources).need(CPU)
        small(sources, 41).need(CPU)


@needs_compiler
def test_two_processes_may_build_at_once(sources: tuple[Path, ...]) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from kernwright.runtime.library import Library\n"
        "from kernwright.runtime.target import Target\n"
        "own = Library('answer', tuple(map(Path, sys.argv[1:])), (('KERNWRIGHT_NUMBER', '40'),))\n"
        "print(own.load(Target('cpu')).answer())"
    )
    command = [sys.executable, "-c", code, *map(str, sources)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.communicate(timeout=120)[0] for process in both] == ["42\n", "42\n"]
    assert small(sources).find(CPU)


@needs_compiler
def test_an_error_of_the_compiler_reaches_the_user(sources: tuple[Path, ...]) -> None:
    sources[0].write_text("not C++\n")
    with pytest.raises(EnvironmentProblem, match=r"answer could not be built for cpu:\n.*error"):
        small(sources).need(CPU)
    assert not list(cache_folder().glob(".building-*"))


def test_a_librarys_name_covers_all_of_its_sources(sources: tuple[Path, ...], tmp_path: Path) -> None:
    names = {
        small(sources).file_name(CPU),
        small(sources, 41).file_name(CPU),
        small(sources).file_name(Target("sm_90")),
    }
    assert len(names) == 3
    other = tmp_path / "other"
    other.mkdir()
    for source in sources:
        (other / source.name).write_text(source.read_text())
    moved = tuple(other / source.name for source in sources)
    assert small(moved).file_name(CPU) in names, "where the sources lie is no part of it"
    changed = tmp_path / "changed"
    changed.mkdir()
    (changed / "answer.cc").write_text(sources[0].read_text())
    (changed / "number.h").write_text("#define NUMBER 3\n")
    assert small((changed / "answer.cc", changed / "number.h")).file_name(CPU) not in names


def test_a_folder_that_cannot_be_written_is_named(sources: tuple[Path, ...], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentProblem, match="cannot be written"):
        small(sources).build(CPU, tmp_path / "file" / "folder")


@needs_compiler
def test_a_failed_build_is_not_tried_again(sources: tuple[Path, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    sources[0].write_text("not C++\n")
    own = small(sources)
    assert own.unavailable(CPU) is None, "nobody has tried"
    with pytest.raises(NotBuilt) as first:
        own.need(CPU)
    monkeypatch.setattr(Library, "_compile", lambda *_: pytest.fail("was built again"))
    for again in (own.need, own.load, own.unavailable):
        with pytest.raises(NotBuilt) as then:
            again(CPU)
        assert str(then.value) == str(first.value)
    assert "\n" not in first.value.in_short and first.value.in_short.endswith(f"({first.value.remedy})")
    assert small(sources, 41).unavailable(CPU) is None, "another library is another try"


@needs_compiler
def test_another_cache_folder_allows_another_try(
    sources: tuple[Path, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "file"))
    for _ in range(2):
        with pytest.raises(NotBuilt, match="cannot be written"):
            small(sources).need(CPU)
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    assert small(sources).unavailable(CPU) is None and is_whole(small(sources).need(CPU))


def test_a_library_that_cannot_be_loaded_is_not_tried_again(sources: tuple[Path, ...]) -> None:
    own = small(sources)
    path = cache_folder() / own.file_name(CPU)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"no library")
    checksum_file(path).write_text(hashlib.sha256(b"no library").hexdigest())
    with pytest.raises(NotBuilt, match="cannot be loaded"):
        own.load(CPU)
    with pytest.raises(NotBuilt, match="cannot be loaded"):
        own.unavailable(CPU)
