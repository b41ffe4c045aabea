"""CompiledStore: files that compilers made for trusted sides, kept from one judgement to the next.

No worker sees the store. The judge copies files from the scratch folder of an ended worker, and into those of later
workers. A file is named by the hash of its bytes, which is checked before each use. An entry lists the files of one
key. Writes go to a temporary file that is then moved; a lock separates two judges. The least recently used entries are
removed when the store is full.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

VARIABLE = "KERNWRIGHT_COMPILED"
OFF = "off"
MOST_BYTES = 4 * 2**30

Files = dict[str, bytes]  # the key is the path below a scratch folder


class CompiledEntry(BaseModel):
    """The files of one key. `facts` are the inputs of the key, for readers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    facts: dict[str, Any]
    files: dict[str, str]

    @field_validator("files")
    @classmethod
    def names_stay_below(cls, files: dict[str, str]) -> dict[str, str]:
        for name, digest in files.items():
            if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
                raise ValueError(f"{name} leaves the scratch folder")
            if len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
                raise ValueError(f"{digest} is not a SHA-256 digest")
        return files


class CompiledStore:
    """A folder that only the judge's user may enter."""

    def __init__(self, folder: Path, most_bytes: int = MOST_BYTES) -> None:
        self.folder, self.most_bytes = folder, most_bytes

    @classmethod
    def here(cls) -> CompiledStore | None:
        """Return this machine's store, or None if it is switched off."""
        asked = os.environ.get(VARIABLE, "")
        if asked == OFF:
            return None
        cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        return cls(Path(asked or Path(cache, "kernwright", "compiled")).absolute())

    def take(self, key: str) -> Files:
        """Return an entry's files. An entry with a damaged file is removed: a compiler that finds a part of a kernel's
        files takes them for complete."""
        place = self._place_of(key)
        with self._held(fcntl.LOCK_EX):
            entry = self._read(place)
            if entry is None:
                return {}
            files: Files = {}
            for name, digest in entry.files.items():
                data = self._read_file(digest)
                if data is None:
                    place.unlink()
                    return {}
                files[name] = data
            os.utime(place)  # marks it as recently used
        return files

    def keep(self, key: str, facts: Mapping[str, Any], files: Files) -> None:
        """Add files to an entry, replacing those of the same names."""
        with self._held(fcntl.LOCK_EX):
            known = self._read(self._place_of(key))
            listed = dict(known.files) if known else {}
            for name, data in files.items():
                digest = hashlib.sha256(data).hexdigest()
                if self._read_file(digest) is None:
                    self._write(self._file(digest), data)
                listed[name] = digest
            entry = CompiledEntry(facts=dict(facts), files=listed)
            self._write(self._place_of(key), entry.model_dump_json(indent=1).encode())
            self._make_room()

    def forget(self, key: str) -> None:
        with self._held(fcntl.LOCK_EX):
            self._place_of(key).unlink(missing_ok=True)

    def _place_of(self, key: str) -> Path:
        return self.folder / "entries" / f"{hashlib.sha256(key.encode()).hexdigest()}.json"

    def _file(self, digest: str) -> Path:
        return self.folder / "files" / digest

    def _read(self, place: Path) -> CompiledEntry | None:
        try:
            return CompiledEntry.model_validate(json.loads(place.read_bytes()))
        except (OSError, ValueError, ValidationError):
            return None

    def _read_file(self, digest: str) -> bytes | None:
        with contextlib.suppress(OSError):
            data = self._file(digest).read_bytes()
            return data if hashlib.sha256(data).hexdigest() == digest else None
        return None

    def _write(self, place: Path, data: bytes) -> None:
        handle, beside = tempfile.mkstemp(prefix=".part-", dir=place.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            Path(beside).replace(place)
        except BaseException:
            Path(beside).unlink(missing_ok=True)
            raise

    def _make_room(self) -> None:
        """Remove the least recently used entries until the rest fits, then all files that no entry lists."""
        places = sorted((self.folder / "entries").glob("*.json"), key=lambda path: path.stat().st_mtime, reverse=True)
        sizes = {path.name: path.stat().st_size for path in (self.folder / "files").iterdir()}
        listed: set[str] = set()
        for place in places:
            entry = self._read(place)
            more = listed | set(entry.files.values()) if entry else listed
            if entry is None or sum(sizes.get(digest, 0) for digest in more) > self.most_bytes:
                place.unlink()
            else:
                listed = more
        for path in [*(self.folder / "files").iterdir(), *(self.folder / "entries").glob(".part-*")]:
            if path.name not in listed:
                path.unlink()

    @contextlib.contextmanager
    def _held(self, how: int) -> Iterator[None]:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        for name in ("entries", "files"):
            (self.folder / name).mkdir(exist_ok=True)
        with (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, how)
            yield
