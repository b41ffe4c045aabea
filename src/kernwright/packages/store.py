"""Store: a folder of unpacked trees, each in a folder named by the digest of its content.

A tree is unpacked next to its final place and moved there as a whole. It is hashed before each use, and an incomplete
or changed tree is unpacked again. On a machine without a network, trees come out of a bundle.
"""

from __future__ import annotations

import contextlib
import fcntl
import fnmatch
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from kernwright.core.errors import EnvironmentProblem, KernwrightError
from kernwright.packages.archive import restore
from kernwright.packages.download import WheelSource, fetch
from kernwright.packages.files import digest_of, folder_bytes, folder_files, named_files, write_problem
from kernwright.packages.tree import Tree
from kernwright.packages.wheel import unpack_or_delete

VARIABLE = "KERNWRIGHT_BASELINES"
CARRIED = "kernwright_baselines"  # the folder of a bundle that holds archives of trees


def store_folder() -> Path:
    """Return the folder that KERNWRIGHT_BASELINES names, else one in the user's cache."""
    if own := os.environ.get(VARIABLE):
        return Path(own).absolute()
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache, "kernwright", "baselines").absolute()


class Store:
    """The unpacked trees of this machine."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or store_folder()

    def place(self, tree: Tree) -> Path:
        """Return the folder that a tree belongs in, whether it is there or not."""
        return self.folder / tree.digest

    def find(self, tree: Tree) -> Path | None:
        """Return the folder of an unpacked tree, or None if it is missing or changed."""
        place = self.place(tree)
        return place if place.is_dir() and tree_digest(place) == tree.digest else None

    def need(self, tree: Tree) -> Path:
        """Return the folder of a tree, unpacking it from a bundle if needed. Never use the network."""
        if found := self.find(tree) or self._restored(tree):
            return found
        raise EnvironmentProblem(
            f"{self.folder} holds no complete copy of {tree}",
            "fetch it: kernwright baseline fetch (--cutedsl for CuTe-DSL)",
        )

    def fetch(self, tree: Tree, source: WheelSource, say: Callable[[str], None]) -> Path:
        """Return the folder of a tree: from the store, unpacked from a bundle, or downloaded."""
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
            remedy = f"set {VARIABLE} to a folder that this user may write"
            raise write_problem(str(tree), self.folder, error, remedy) from error

    def _restored(self, tree: Tree) -> Path | None:
        return self.fetch(tree, WheelSource(), lambda _: None) if carried_pieces(tree) else None

    @contextlib.contextmanager
    def _making(self, tree: Tree) -> Iterator[Path]:
        """Lock a tree and yield a folder to make it in. A second process waits here, then finds the finished tree."""
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
                "the lock file and the wheels differ: correct the lock file, or find out what changed the wheels",
            )
        for path in (made, *made.rglob("*")):
            # Workers may run as another user, who must be able to read the tree.
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
        place = self.place(tree)
        if place.exists():
            broken = made.with_name("broken")
            place.rename(broken)
        made.rename(place)
        return place


def tree_digest(folder: Path) -> str:
    """Return the digest of an unpacked tree."""
    return digest_of(named_files(folder))


def carried_pieces(tree: Tree) -> list[Path]:
    """Return the pieces of a tree's archive in the bundles on sys.path, in order. Return [] if no bundle carries it.

    Raises:
        EnvironmentProblem: some pieces are there and others are missing.
    """
    folders = [Path(entry) / CARRIED for entry in sys.path if entry]
    found = {path.name: path for folder in folders if folder.is_dir() for path in folder.glob(f"{tree.digest}.*of*")}
    if not found:
        return []
    count = int(next(iter(found)).rpartition("of")[2])
    names = [piece_name(tree, number, count) for number in range(1, count + 1)]
    if missing := [name for name in names if name not in found]:
        raise EnvironmentProblem(
            f"the bundle lacks {len(missing)} of {count} pieces of {tree}", "put every part of the bundle on PYTHONPATH"
        )
    return [found[name] for name in names]


def piece_name(tree: Tree, number: int, count: int) -> str:
    """Return the file name of one piece of a tree's archive."""
    return f"{tree.digest}.{number}of{count}"


def _unpack(tree: Tree, source: WheelSource, wheels: Path, place: Path) -> None:
    found = fetch([wheel.pin for wheel in tree.wheels], tree.target, source, wheels)
    for pin, wheel in found.items():
        unpack_or_delete(wheel, pin, place)
        _drop(tree, place)  # after each wheel, because files that are dropped may share a name between wheels


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
