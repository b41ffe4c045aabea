"""Store: a folder of unpacked trees, each under the digest of its own content.

A tree is made beside its place and moved there whole. What is found is hashed before it is used: a half-written or
changed tree is made again. Trees also come out of a bundle, for a machine without a network.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import fnmatch
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from kernwright.baselines.archive import restore
from kernwright.baselines.lock import Tree
from kernwright.bundle.download import Source, fetch
from kernwright.bundle.files import digest_of, folder_bytes, folder_files, named_files
from kernwright.bundle.wheel import unpack
from kernwright.core.errors import EnvironmentProblem, KernwrightError

VARIABLE = "KERNWRIGHT_BASELINES"
CARRIED = "kernwright_baselines"  # a bundle's folder of archives
_REMEDIES = {
    errno.ENOSPC: "free some space and repeat; finished downloads are kept",
    errno.EDQUOT: "free some space and repeat; finished downloads are kept",
    errno.EACCES: f"set {VARIABLE} to a folder that this user may write",
    errno.EROFS: f"set {VARIABLE} to a folder that this user may write",
}


def store_folder() -> Path:
    if own := os.environ.get(VARIABLE):
        return Path(own).absolute()
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache, "kernwright", "baselines").absolute()


class Store:
    """Where trees lie on this machine."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or store_folder()

    def place(self, tree: Tree) -> Path:
        return self.folder / tree.digest

    def find(self, tree: Tree) -> Path | None:
        """The unpacked tree, if it is there and unchanged."""
        place = self.place(tree)
        return place if place.is_dir() and tree_digest(place) == tree.digest else None

    def need(self, tree: Tree) -> Path:
        """The unpacked tree, out of a bundle if need be; never from the network."""
        if found := self.find(tree) or self._restored(tree):
            return found
        raise EnvironmentProblem(
            f"{tree} is not in {self.folder}, or not whole",
            "fetch it: kernwright baseline fetch (--cutedsl for CuTe-DSL)",
        )

    def fetch(self, tree: Tree, source: Source, say: Callable[[str], None]) -> Path:
        """The unpacked tree: as it lies here, out of a bundle, or downloaded."""
        try:
            with self._making(tree) as shop:
                if found := self.find(tree):
                    return found
                pieces = carried_pieces(tree)
                say(f"unpacking {tree}" if pieces else f"fetching {tree} from {source}")
                made = self._fresh(shop)
                if pieces:
                    restore(pieces, made)
                else:
                    _unpack(tree, source, shop / "wheels", made)
                return self._put_in_place(tree, made)
        except OSError as error:
            raise EnvironmentProblem(
                f"{tree} cannot be stored: {error.filename or self.folder}: {error.strerror or error}",
                _REMEDIES.get(error.errno or 0, "check the folder and the disk"),
            ) from error

    def _restored(self, tree: Tree) -> Path | None:
        return self.fetch(tree, Source(), lambda _: None) if carried_pieces(tree) else None

    @contextlib.contextmanager
    def _making(self, tree: Tree) -> Iterator[Path]:
        """A workshop for one tree. Whoever comes second waits, and finds the tree made."""
        shop = self.folder / f"{tree.digest}.partial"
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / f"{tree.digest}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            shop.mkdir(exist_ok=True)
            try:
                yield shop
            except BaseException:
                shutil.rmtree(shop / "made", ignore_errors=True)
                raise
            shutil.rmtree(shop)

    def _fresh(self, shop: Path) -> Path:
        made = shop / "made"
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir()
        return made

    def _put_in_place(self, tree: Tree, made: Path) -> Path:
        found = tree_digest(made)
        if found != tree.digest:
            raise KernwrightError(
                f"{tree} unpacks to {found} ({folder_bytes(made)} bytes), not to the locked {tree.digest}",
                "the lock file and the wheels differ: mend the lock, or find out who changed the files",
            )
        for path in (made, *made.rglob("*")):
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)  # a worker may be another user
        place = self.place(tree)
        if place.exists():
            broken = made.with_name("broken")
            place.rename(broken)
        made.rename(place)
        return place


def tree_digest(folder: Path) -> str:
    return digest_of(named_files(folder))


def carried_pieces(tree: Tree) -> list[Path]:
    """The pieces of a tree's archive in the bundles on Python's path, or none if one is missing."""
    folders = [Path(entry) / CARRIED for entry in sys.path if entry]
    found = {path.name: path for folder in folders if folder.is_dir() for path in folder.glob(f"{tree.digest}.*of*")}
    if not found:
        return []
    count = int(next(iter(found)).rpartition("of")[2])
    names = [piece_name(tree, number, count) for number in range(1, count + 1)]
    if missing := [name for name in names if name not in found]:
        raise EnvironmentProblem(
            f"the bundle lacks {len(missing)} of {count} pieces of {tree}", "put every part of it on PYTHONPATH"
        )
    return [found[name] for name in names]


def piece_name(tree: Tree, number: int, count: int) -> str:
    return f"{tree.digest}.{number}of{count}"


def _unpack(tree: Tree, source: Source, wheels: Path, place: Path) -> None:
    found = fetch([wheel.pin for wheel in tree.wheels], tree.target, source, wheels)
    for pin, wheel in found.items():
        try:
            unpack(wheel, pin, place)
        except KernwrightError:
            wheel.unlink()  # kept, it would be met again by the next try
            raise
        _drop(tree, place)  # one by one: left-out files of two wheels may share a name


def _drop(tree: Tree, place: Path) -> None:
    for path in list(folder_files(place)):
        name = path.relative_to(place).as_posix()
        if not _matches(name, tree.keep) or _matches(name, tree.leave):
            path.unlink()
    for folder in sorted((path for path in place.rglob("*") if path.is_dir()), reverse=True):
        with contextlib.suppress(OSError):  # not empty
            folder.rmdir()


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
