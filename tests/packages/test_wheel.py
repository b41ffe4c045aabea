"""Unpacking: files go to their places, and a wheel whose content differs from its RECORD is refused."""

from __future__ import annotations

import os
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from kernwright.core.errors import KernwrightError
from kernwright.packages.pin import Pin
from kernwright.packages.wheel import unpack

PIN = Pin("tiny", "1.0")


def names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_every_scheme_lands_where_it_can_be_imported(tmp_path: Path, write_wheel: Callable[..., Path]) -> None:
    wheel = write_wheel(
        tmp_path, "tiny", files={
            "tiny/__init__.py": "", "tiny/__pycache__/x.cpython-312.pyc": "", "tiny-1.0.data/purelib/pure.py": "1",
            "tiny-1.0.data/platlib/fast.so": "2", "tiny-1.0.data/scripts/tool": "#!python\nprint()\n",
            "tiny-1.0.data/scripts/binary": b"\x7fELF", "tiny-1.0.data/data/share/man/x.1": "",
            "tiny-1.0.data/headers/h.h": "",
        },
    )  # fmt: skip
    place = tmp_path / "out"
    assert unpack(wheel, PIN, place) == []
    own = {f"tiny-1.0.dist-info/{name}" for name in ("METADATA", "WHEEL", "RECORD")}
    assert names(place) == own | {"tiny/__init__.py", "pure.py", "fast.so", "bin/tool", "bin/binary"}
    assert (place / "bin/tool").read_text() == "#!/usr/bin/env python3\nprint()\n"
    assert all(os.access(place / "bin" / name, os.X_OK) for name in ("tool", "binary"))
    assert not (place / "pure.py").stat().st_mode & stat.S_IXUSR


@pytest.mark.parametrize(
    "name",
    [
        "../evil.py",
        "tiny/../../evil.py",
        "/evil.py",
        "tiny-1.0.data/purelib/../../evil.py",
        "..\\evil.py",
        "C:/evil.py",
    ],
)
def test_nothing_lands_outside(tmp_path: Path, write_wheel: Callable[..., Path], name: str) -> None:
    wheel = write_wheel(tmp_path / "w", "tiny", files={"tiny/__init__.py": "", name: "evil"})
    with pytest.raises(KernwrightError, match=r"evil\.py.*outside"):
        unpack(wheel, PIN, tmp_path / "deep" / "out")
    assert not list(tmp_path.rglob("*evil*"))


def test_links_are_refused(tmp_path: Path, write_wheel: Callable[..., Path]) -> None:
    wheel = write_wheel(tmp_path, "tiny")
    link = zipfile.ZipInfo("tiny/link")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr(link, "/etc/passwd")
    with pytest.raises(KernwrightError, match="is a link"):
        unpack(wheel, PIN, tmp_path / "out")


def test_content_is_compared_with_the_record(tmp_path: Path, write_wheel: Callable[..., Path]) -> None:
    files = {"tiny/__init__.py": "v = 1"}
    changed = write_wheel(tmp_path / "a", "tiny", files=files, record={"tiny/__init__.py": "sha256=AAAA"})
    with pytest.raises(KernwrightError, match="hash in RECORD"):
        unpack(changed, PIN, tmp_path / "out")
    unlisted = write_wheel(tmp_path / "b", "tiny", files=files, record={"tiny/__init__.py": ""})
    with pytest.raises(KernwrightError, match="no usable hash"):
        unpack(unlisted, PIN, tmp_path / "out")


def test_another_package_under_that_name_is_refused(tmp_path: Path, write_wheel: Callable[..., Path]) -> None:
    for other in (write_wheel(tmp_path, "other"), write_wheel(tmp_path, "tiny", version="2.0")):
        with pytest.raises(KernwrightError, match=r"is not tiny==1\.0"):
            unpack(other, PIN, tmp_path / "out")


def test_a_torn_file_is_one_message(tmp_path: Path, write_wheel: Callable[..., Path]) -> None:
    wheel = write_wheel(tmp_path, "tiny")
    wheel.write_bytes(wheel.read_bytes()[:-40])
    with pytest.raises(KernwrightError, match="not a valid wheel"):
        unpack(wheel, PIN, tmp_path / "out")


def test_files_left_out_are_reported_and_headers_stay(tmp_path: Path, write_wheel: Callable[..., Path]) -> None:
    files = dict.fromkeys(
        ("tvm_ffi/include/dlpack/dlpack.h", "tvm_ffi/lib/libtvm_ffi.so", "tvm_ffi/lib/libtvm_ffi_testing.so",
         "tvm_ffi/3rdparty/libbacktrace/elf.c", "tvm_ffi/src/ffi/error.cc"), "x",
    )  # fmt: skip
    wheel = write_wheel(tmp_path, "apache-tvm-ffi", files=files)
    said = unpack(wheel, Pin("apache-tvm-ffi", "1.0"), tmp_path / "out")
    assert "tvm_ffi/src/*" in said
    held = {name for name in names(tmp_path / "out") if name.startswith("tvm_ffi")}
    assert held == set(list(files)[:3])
