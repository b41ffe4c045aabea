"""CompiledFiles: the files that a trusted side's compilers left in its scratch folder, for its twin and later workers.

Only files that trusted code wrote are used again: kernels of a published package, of torch.compile and of the shipped
ops. A candidate's files are never reused. Each compiler checks by its own key whether a file that it finds is what it
would make, so a surplus file is never run.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernwright.core.digest import digest_of
from kernwright.judge.contest.compiled_store import CompiledStore, Files
from kernwright.judge.contest.contestant import Contestant

# Folders below a scratch folder, as set by `worker_environment`. sglang keeps its builds in the last one.
FOLDERS = ("triton", "inductor", "bytecode", ".cache/sglang")
PASSING = ("tmp.", ".staging", "locks"), (".tmp", ".lock")  # prefixes and suffixes of unfinished files and locks
# Choices that torch.compile and Triton made by timing. They are kept and reused only in judgements of trusted sides
# alone, where nothing disturbs the timing.
CHOSEN = (".best_config", ".autotune.json")
LISTS_PATHS = ".json"  # files in which Triton lists a kernel's files by their full paths
SCRATCH = b"@kernwright-scratch@"  # placeholder for the scratch folder in kept files
HARDWARE = ("kind", "model", "capability", "architecture", "driver")
MOST_FILES = 20_000
MOST_BYTES = 512 * 2**20

FileMark = tuple[int, int]  # size and modification time


@dataclass
class CompiledFiles:
    """The compiled files of one side."""

    scratch: Path
    facts: Mapping[str, Any]
    store: CompiledStore
    found: int = 0  # files taken from the store
    _kept: dict[str, FileMark] = field(default_factory=dict)
    _is_laid_out: bool = False

    @classmethod
    def of(
        cls, contestant: Contestant, task: str, scratch: Path, hardware: Mapping[str, Any], libraries: Mapping[str, str]
    ) -> CompiledFiles | None:
        """Return the files of a contestant; None for a candidate, or where the store is switched off.

        Each compiler checks the inputs of its own work. Files that no worker needs together have different keys. The
        record shows the facts of the key. It is the same for all rows of a task.
        """
        store = CompiledStore.here()
        if store is None or not (contestant.trusted or contestant.shipped):
            return None
        facts = {
            "side": contestant.name,
            "digest": contestant.digest,
            "task": task,
            "hardware": {name: str(hardware.get(name)) for name in HARDWARE},
            "libraries": dict(libraries),
        }
        return cls(scratch=scratch, facts=facts, store=store)

    @property
    def key(self) -> str:
        return digest_of(self.facts)

    def about(self) -> dict[str, Any]:
        """Return the description for the record."""
        return {"key": self.key, "files": self.found}

    def lay_out(self, chosen: bool = False) -> None:
        """Place the stored files before the side's first worker loads it. Later workers find them there.

        With `chosen`, choices that an earlier judgement made by timing are placed too.
        """
        if self._is_laid_out:
            return
        self._is_laid_out = True
        try:
            kept = self.store.take(self.key)
            self.found = self._put({name: data for name, data in kept.items() if chosen or not name.endswith(CHOSEN)})
            self._kept = dict(_marks(self.scratch, chosen))
        except OSError:  # everything works without these files, but perhaps not with half of them
            self.found = 0
            self._clear()

    def discard(self) -> None:
        """Drop the files of a side that failed, in case they were the cause."""
        with contextlib.suppress(OSError):
            self.store.forget(self.key)
        self._clear()

    def _clear(self) -> None:
        self._kept = {}
        for folder in FOLDERS:
            shutil.rmtree(self.scratch / folder, ignore_errors=True)

    def keep(self, chosen: bool = False) -> None:
        """Store the new files after the side's worker has ended; with `chosen` also choices made by timing."""
        marks = dict(_marks(self.scratch, chosen))
        new = [name for name, mark in marks.items() if self._kept.get(name) != mark]
        if new:
            with contextlib.suppress(OSError):  # a full disk costs later judgements some seconds
                self.store.keep(self.key, self.facts, _read(self.scratch, new))
                self._kept = marks

    def hand_on(self, twin: CompiledFiles) -> int:
        """Give the twin the files that its compilers would make again. Both workers must be stopped.

        Choices made by timing are not passed on: the noise band must include the effect of such a choice.
        """
        lacking = [name for name, _ in _marks(self.scratch) if not (twin.scratch / name).exists()]
        return twin._put(_read(self.scratch, lacking)) if lacking else 0

    def _put(self, files: Files) -> int:
        """Write files that are missing, owned by the worker's user. Return their number."""
        owner = self.scratch.stat()
        put = 0
        for name, data in files.items():
            place = self.scratch / name
            if place.exists() or not _is_of_a_compiler(name):
                continue
            _make_folders(place.parent, self.scratch, owner)
            place.write_bytes(_placed(name, data, SCRATCH, os.fsencode(self.scratch.absolute())))
            place.chmod(0o700)
            os.chown(place, owner.st_uid, owner.st_gid)
            put += 1
        return put


def _make_folders(folder: Path, scratch: Path, owner: os.stat_result) -> None:
    if folder == scratch or folder.is_dir():
        return
    _make_folders(folder.parent, scratch, owner)
    folder.mkdir(mode=0o700)
    os.chown(folder, owner.st_uid, owner.st_gid)


def _is_of_a_compiler(name: str) -> bool:
    return any(name.startswith(f"{folder}/") for folder in FOLDERS)


def _placed(name: str, data: bytes, old: bytes, new: bytes) -> bytes:
    return data.replace(old, new) if name.endswith(LISTS_PATHS) else data


def _marks(scratch: Path, chosen: bool = False) -> Iterator[tuple[str, FileMark]]:
    """Yield the finished files of compilers. Symbolic links are not followed."""
    of_scratch = f"bytecode{scratch.absolute()}/"  # bytecode of sources that vanish with the folder
    beginnings = PASSING[0]
    endings = PASSING[1] if chosen else (*PASSING[1], *CHOSEN)
    for top in FOLDERS:
        if (scratch / top).resolve() != scratch.resolve() / top:
            continue
        for folder, folders, files in os.walk(scratch / top):
            folders[:] = [name for name in folders if not name.startswith(beginnings)]
            for file in files:
                path = Path(folder, file)
                name = path.relative_to(scratch).as_posix()
                if file.startswith(beginnings) or file.endswith(endings) or name.startswith(of_scratch):
                    continue
                if path.is_file() and not path.is_symlink():
                    found = path.stat()
                    yield name, (found.st_size, found.st_mtime_ns)


def _read(scratch: Path, names: list[str]) -> Files:
    """Return files in their stored form, or none if they exceed the limits: a part of a kernel's files is harmful."""
    sizes = [(scratch / name).stat().st_size for name in names]
    if len(sizes) > MOST_FILES or sum(sizes) > MOST_BYTES:
        return {}
    own = os.fsencode(scratch.absolute())
    return {name: _placed(name, (scratch / name).read_bytes(), own, SCRATCH) for name in names}
