"""CompiledFiles: what a trusted side's compilers left in its scratch folder, for its twin and for workers to come.

Only what trusted code wrote is ever used again: a published package's kernels, torch.compile's, those that ship. A
candidate's stay where they are. Each compiler still decides by its own key whether what it finds is what it would
make, so a file too many is never run.
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

# Below a scratch folder; `worker_environment` says which is whose. The last is where sglang keeps what it has built.
FOLDERS = ("triton", "inductor", "bytecode", ".cache/sglang")
PASSING = ("tmp.", ".staging", "locks"), (".tmp", ".lock")  # how names begin and end of what is not finished, or a lock
# What torch.compile and Triton chose by time. Both are alone when they measure, among trusted sides: only there is it
# kept, and only there does it serve.
CHOSEN = (".best_config", ".autotune.json")
LISTS_PATHS = ".json"  # Triton lists a kernel's files by their full paths
SCRATCH = b"@kernwright-scratch@"  # what a kept file has in the folder's place
HARDWARE = ("kind", "model", "capability", "architecture", "driver")
MOST_FILES = 20_000
MOST_BYTES = 512 * 2**20

FileMark = tuple[int, int]  # a file's size and time


@dataclass
class CompiledFiles:
    """One side's."""

    scratch: Path
    facts: Mapping[str, Any]
    store: CompiledStore
    found: int = 0  # files that came out of the store
    _kept: dict[str, FileMark] = field(default_factory=dict)
    _is_laid_out: bool = False

    @classmethod
    def of(
        cls, contestant: Contestant, task: str, scratch: Path, hardware: Mapping[str, Any], libraries: Mapping[str, str]
    ) -> CompiledFiles | None:
        """None for a candidate, or where it is switched off. Every compiler looks by itself at all that its work
        depends on; the key keeps apart what no one worker needs together, and says in the record what was used. It is
        the same for all rows of a task: what was compiled for some serves whoever judges them beside others."""
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
        return cls(scratch, facts, store)

    @property
    def key(self) -> str:
        return digest_of(self.facts)

    def about(self) -> dict[str, Any]:
        """For the record."""
        return {"key": self.key, "files": self.found}

    def lay_out(self, chosen: bool = False) -> None:
        """Before the side's first worker loads it. Later ones find what their predecessors left. `chosen`: what was
        chosen by time in an earlier judgement, too."""
        if self._is_laid_out:
            return
        self._is_laid_out = True
        try:
            kept = self.store.take(self.key)
            self.found = self._put({name: data for name, data in kept.items() if chosen or not name.endswith(CHOSEN)})
            self._kept = dict(_marks(self.scratch, chosen))
        except OSError:  # a store that cannot be read is as good as none, half of its files are not
            self.found = 0
            self._clear()

    def discard(self) -> None:
        """Where the side fell over: should it have been for what it found, no later worker finds it."""
        with contextlib.suppress(OSError):
            self.store.forget(self.key)
        self._clear()

    def _clear(self) -> None:
        self._kept = {}
        for folder in FOLDERS:
            shutil.rmtree(self.scratch / folder, ignore_errors=True)

    def keep(self, chosen: bool = False) -> None:
        """After the side's worker has ended: what is new goes to the store. `chosen`: what was chosen by time, too."""
        marks = dict(_marks(self.scratch, chosen))
        new = [name for name, mark in marks.items() if self._kept.get(name) != mark]
        if new:
            with contextlib.suppress(OSError):  # a full disk costs later judgements some seconds
                self.store.keep(self.key, self.facts, _read(self.scratch, new))
                self._kept = marks

    def hand_on(self, twin: CompiledFiles) -> int:
        """What the twin's compilers would make again, but for what they choose by time: were that handed on, the noise
        band would not show what a choice is worth. Both workers stand still."""
        lacking = [name for name, _ in _marks(self.scratch) if not (twin.scratch / name).exists()]
        return twin._put(_read(self.scratch, lacking)) if lacking else 0

    def _put(self, files: Files) -> int:
        """Where there is such a file, it stays. They belong to the worker, as if it had made them."""
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
    """Every finished file of a compiler's. Links lead nowhere."""
    of_scratch = f"bytecode{scratch.absolute()}/"  # of sources that go with the folder
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
    """As they are kept. Too much is none: half of a kernel's files are worse than nothing."""
    sizes = [(scratch / name).stat().st_size for name in names]
    if len(sizes) > MOST_FILES or sum(sizes) > MOST_BYTES:
        return {}
    own = os.fsencode(scratch.absolute())
    return {name: _placed(name, (scratch / name).read_bytes(), own, SCRATCH) for name in names}
