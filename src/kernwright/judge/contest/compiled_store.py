"""Compiled store: what compilers made for trusted sides, kept from one judgement to the next.

No worker ever sees it: the judge takes files out of the scratch folder of a worker that has ended and puts copies into
those of later ones. A file lies under the hash of its bytes, and what is found is hashed before it is used. An entry
lists the files of one key. Whatever is written is written beside its place and moved there; a lock keeps two judges
apart. Entries that were not used for longest go first when it is full.
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

Files = dict[str, bytes]  # by their path below a scratch folder


class CompiledEntry(BaseModel):
    """The files of one key. `facts` is what the key is made of, for who looks at it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    facts: dict[str, Any]
    files: dict[str, str]

    @field_validator("files")
    @classmethod
    def names_stay_below(cls, files: dict[str, str]) -> dict[str, str]:
        for name, digest in files.items():
            if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
                raise ValueError(f"{name} leads elsewhere")
            if len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
                raise ValueError(f"{digest} is no digest")
        return files


class CompiledStore:
    """A folder that only the judge's own user may enter."""

    def __init__(self, folder: Path, most_bytes: int = MOST_BYTES) -> None:
        self.folder, self.most_bytes = folder, most_bytes

    @classmethod
    def here(cls) -> CompiledStore | None:
        """None where it is switched off."""
        asked = os.environ.get(VARIABLE, "")
        if asked == OFF:
            return None
        cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        return cls(Path(asked or Path(cache, "kernwright", "compiled")).absolute())

    def take(self, key: str) -> Files:
        """An entry's files. Where one of them is not what it was the entry counts for nothing, and goes: a compiler
        that finds half of a kernel's files takes them for all."""
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
            os.utime(place)  # it is in use
        return files

    def keep(self, key: str, facts: Mapping[str, Any], files: Files) -> None:
        """Adds files to an entry, or puts them in the place of others of their names."""
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
        """What no entry lists goes, what a killed judge left half-written too; then entries, the longest unused first,
        until the rest fits."""
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
