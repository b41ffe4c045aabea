"""Wheel: a package's archive, unpacked into a plain folder from which it can be imported.

No file is written outside that folder, and each file is compared with the hash in the wheel's RECORD.
"""

from __future__ import annotations

import base64
import csv
import fnmatch
import hashlib
import io
import stat
import zipfile
from pathlib import Path, PurePosixPath

from kernwright.core.errors import KernwrightError
from kernwright.packages.pin import Pin, canonical

# Files that Kernwright never reads. The headers and libraries that a native candidate is built with are kept: tvm-ffi
# has copies of dlpack's and of its own headers below include/, and its Python core is linked with
# libtvm_ffi_testing.so in spite of that name.
LEFT_OUT = {
    "apache-tvm-ffi": (
        "tvm_ffi/3rdparty/*", "tvm_ffi/src/*", "tvm_ffi/cython/*", "tvm_ffi/stub/*", "tvm_ffi/share/*",
    ),
    "nvidia-ml-py": ("example.py",),
    "pydantic": ("pydantic/v1/*", "pydantic/mypy.py"),
    "pydantic-core": ("*/sboms/*",),
    # pytest and rich highlight Python and diffs on a terminal. Most of the package is for 250 other languages.
    "pygments": ("pygments/lexers/*", "pygments/formatters/*", "pygments/cmdline.py", "pygments/sphinxext.py"),
}  # fmt: skip
_LEXERS = ("__init__", "_mapping", "special", "python", "diff", "shell", "data", "configs", "c_cpp")
_FORMATTERS = ("__init__", "_mapping", "terminal", "terminal256")
KEPT = {
    "pygments": (
        *(f"pygments/lexers/{name}.py" for name in _LEXERS),
        *(f"pygments/formatters/{name}.py" for name in _FORMATTERS),
    ),
}
_SCRIPT_START = b"#!python"
_PORTABLE_START = b"#!/usr/bin/env python3"


def unpack(wheel: Path, pin: Pin, folder: Path) -> list[str]:
    """Unpack a wheel into ``folder``. Return the patterns of the files that were left out."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            members = _members(archive, wheel)
            hashes = _recorded_hashes(archive, _dist_info(members, pin, wheel), wheel)
            for name, member in members.items():
                data = archive.read(member)
                _check(name, data, hashes, wheel)
                if (place := _place(name)) and not _is_left_out(place, pin):
                    _write(folder / place, data, _mode(member, place))
    except (zipfile.BadZipFile, EOFError, UnicodeDecodeError, NotImplementedError) as error:
        raise _bad(wheel, f"is not a valid wheel: {error}") from error
    return list(LEFT_OUT.get(pin.name, ()))


def unpack_or_delete(wheel: Path, pin: Pin, folder: Path) -> list[str]:
    """Unpack a downloaded wheel. Delete a faulty one, so that the next attempt downloads it again."""
    try:
        return unpack(wheel, pin, folder)
    except KernwrightError:
        wheel.unlink()
        raise


def _bad(wheel: Path, problem: str) -> KernwrightError:
    return KernwrightError(f"{wheel.name}: {problem}", "do not use it; delete it and download it again")


def _members(archive: zipfile.ZipFile, wheel: Path) -> dict[str, zipfile.ZipInfo]:
    members: dict[str, zipfile.ZipInfo] = {}
    for member in archive.infolist():
        # The name as written in the archive. ZipInfo.filename is already normalized.
        name = member.orig_filename
        parts = PurePosixPath(name).parts
        if not parts or name.startswith("/") or ".." in parts or "\\" in name or "\0" in name or ":" in parts[0]:
            raise _bad(wheel, f"{name!r} would be written outside the folder")
        kind = stat.S_IFMT(member.external_attr >> 16)
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise _bad(wheel, f"{name!r} is a link or another special file")
        if member.is_dir():
            continue
        if name in members:
            raise _bad(wheel, f"{name!r} is in it twice")
        members[name] = member
    return members


def _dist_info(members: dict[str, zipfile.ZipInfo], pin: Pin, wheel: Path) -> str:
    folders = {name.partition("/")[0] for name in members if name.partition("/")[0].endswith(".dist-info")}
    name, _, version = next(iter(folders), "").removesuffix(".dist-info").partition("-")
    if len(folders) != 1 or canonical(name) != pin.name or version != pin.version.replace("-", "_"):
        raise _bad(wheel, f"is not {pin}: it holds {', '.join(sorted(folders)) or 'no .dist-info'}")
    return folders.pop()


def _recorded_hashes(archive: zipfile.ZipFile, dist_info: str, wheel: Path) -> dict[str, str]:
    try:
        text = archive.read(f"{dist_info}/RECORD").decode()
    except KeyError:
        raise _bad(wheel, "has no RECORD of its files") from None
    return {row[0]: row[1] for row in csv.reader(io.StringIO(text)) if len(row) >= 2}


def _check(name: str, data: bytes, hashes: dict[str, str], wheel: Path) -> None:
    if name.endswith((".dist-info/RECORD", ".dist-info/RECORD.jws", ".dist-info/RECORD.p7s")):
        return
    method, _, expected = hashes.get(name, "").partition("=")
    if method not in ("sha256", "sha384", "sha512"):
        raise _bad(wheel, f"{name!r} has no usable hash in its RECORD")
    found = base64.urlsafe_b64encode(hashlib.new(method, data).digest()).rstrip(b"=").decode()
    if found != expected:
        raise _bad(wheel, f"{name!r} does not match the hash in RECORD")


def _place(name: str) -> str | None:
    """Return the path of a file below the folder, or None for a file that only an installed package could use."""
    top, _, rest = name.partition("/")
    if not top.endswith(".data"):
        return name
    scheme, _, path = rest.partition("/")
    if scheme in ("purelib", "platlib"):
        return path or None
    return f"bin/{path}" if scheme == "scripts" and path else None


def _is_left_out(place: str, pin: Pin) -> bool:
    if "__pycache__" in place.split("/"):
        return True
    if any(fnmatch.fnmatchcase(place, kept) for kept in KEPT.get(pin.name, ())):
        return False
    return any(fnmatch.fnmatchcase(place, pattern) for pattern in LEFT_OUT.get(pin.name, ()))


def _mode(member: zipfile.ZipInfo, place: str) -> int:
    executable = place.startswith("bin/") or member.external_attr >> 16 & stat.S_IXUSR
    return 0o755 if executable else 0o644


def _write(path: Path, data: bytes, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.parent.name == "bin" and data.startswith(_SCRIPT_START):
        data = _PORTABLE_START + data[len(_SCRIPT_START) :]
    with path.open("xb") as stream:  # fails if another scheme of the wheel already brought a file of this name
        stream.write(data)
    path.chmod(mode)
