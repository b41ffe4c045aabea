"""Bundle: a folder that PYTHONPATH may name, with all that Kernwright needs beyond torch and its companions.

It is made beside its place, in ``<folder>.partial``, and moved there whole: an interrupted run leaves the old bundle
or none, and its finished downloads for the next try.
"""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import hashlib
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kernwright import __version__
from kernwright.baselines.archive import cut
from kernwright.baselines.archive import pack as archive_tree
from kernwright.baselines.lock import Tree
from kernwright.baselines.store import CARRIED, Store, piece_name
from kernwright.bundle.download import Source, fetch
from kernwright.bundle.files import digest_of, folder_bytes, sha256
from kernwright.bundle.manifest import MANIFEST, Manifest, Package, Part, check_bundle, part_digest, read_manifest
from kernwright.bundle.origin import own_files
from kernwright.bundle.parts import Load, pack
from kernwright.bundle.pin import Pin
from kernwright.bundle.target import Target
from kernwright.bundle.wheel import unpack
from kernwright.core.errors import EnvironmentProblem, KernwrightError

OWN = "kernwright"
PIECES_A_PART = 4  # baselines are cut finer than the parts, so that these fill up
_REMEDIES = {
    errno.ENOSPC: "free some space and repeat; finished downloads are kept",
    errno.EDQUOT: "free some space and repeat; finished downloads are kept",
    errno.EACCES: "choose a folder that this user may write",
    errno.EROFS: "choose a folder that this user may write",
}


@dataclass(frozen=True)
class BundleRequest:
    folder: Path
    target: Target
    core: tuple[Pin, ...]
    tests: tuple[Pin, ...] = ()
    more: tuple[Pin, ...] = ()
    baselines: tuple[Tree, ...] = ()
    package: bool = True  # Kernwright itself
    part_bytes: int | None = None
    source: Source = dataclasses.field(default_factory=Source)

    def pins(self) -> list[Pin]:
        return [*self.core, *self.tests, *self.more]

    def group(self, pin: Pin) -> str:
        return "core" if pin in self.core else "tests" if pin in self.tests else "more"


def make_bundle(request: BundleRequest, say: Callable[[str], None]) -> Manifest:
    """Make the bundle, or find it made already."""
    folder = request.folder.absolute()
    try:
        previous = _what_is_there(folder)
        if previous and _is_what_is_wanted(previous, request, folder):
            say(f"{request.folder} is up to date")
            return previous
        with _workshop(folder) as shop:
            packages = _unpacked(request, previous, shop, say)
            manifest = _assemble(request, packages, shop)
            _put_in_place(shop, folder)
        return manifest
    except OSError as error:
        place = error.filename or folder
        raise EnvironmentProblem(
            f"the bundle cannot be written: {place}: {error.strerror or error}",
            _REMEDIES.get(error.errno or 0, "check the folder and the disk"),
        ) from error


def _what_is_there(folder: Path) -> Manifest | None:
    """The bundle that will be replaced. A folder with anything else in it is left alone."""
    if not folder.exists():
        return None
    if not folder.is_dir():
        raise KernwrightError(f"{folder} is a file", "name a folder that does not exist yet")
    manifest = read_manifest(folder)
    found = {path.name for path in folder.iterdir()}
    if manifest is None:
        if found:
            raise KernwrightError(f"{folder} is neither empty nor a bundle", "name another folder")
        return None
    ours = {MANIFEST, "__pycache__", *(part.folder for part in manifest.parts)}
    ours |= {entry for package in manifest.packages for entry in package.entries}
    if strange := sorted(found - ours):
        raise KernwrightError(
            f"{folder} holds what is not of the bundle: {', '.join(strange[:5])}",
            "move it away, or name another folder",
        )
    return manifest


def _is_what_is_wanted(manifest: Manifest, request: BundleRequest, folder: Path) -> bool:
    wanted = {(pin.name, pin.version, request.group(pin)) for pin in request.pins()}
    held = {
        (package.name, package.version, package.group)
        for package in manifest.packages
        if package.wheel and package.group != "baselines"
    }
    trees = {package.sha256 for package in manifest.packages if package.group == "baselines"}
    own = [package.sha256 for package in manifest.packages if package.wheel is None]
    if (
        wanted != held
        or trees != {tree.digest for tree in request.baselines}
        or manifest.kernwright != __version__  # which decides what is left out
        or manifest.target != request.target
        or manifest.part_bytes != request.part_bytes
        or own != ([digest_of(own_files())] if request.package else [])
    ):
        return False
    try:
        check_bundle(folder)
    except KernwrightError:
        return False
    return True


@contextmanager
def _workshop(folder: Path) -> Iterator[Path]:
    """The folder that a bundle is made in. It outlives a failure, for the downloads in it."""
    shop = folder.with_name(f"{folder.name}.partial")
    shop.mkdir(parents=True, exist_ok=True)
    with (shop / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise EnvironmentProblem(f"another run is making {folder}", "wait until it has ended") from None
        for name in ("unpacked", "pieces", "tree", "old"):
            shutil.rmtree(shop / name, ignore_errors=True)
        try:
            yield shop
        except BaseException:
            if not any(shop.glob("wheels-*/*.whl")):
                shutil.rmtree(shop, ignore_errors=True)
            raise
        shutil.rmtree(shop)


def _unpacked(
    request: BundleRequest, previous: Manifest | None, shop: Path, say: Callable[[str], None]
) -> list[Package]:
    wheels = _fetched(request, previous, shop, say)
    say(f"unpacking {len(wheels)} wheels")
    packages = []
    for pin, wheel in wheels.items():
        place = shop / "unpacked" / pin.name
        place.mkdir(parents=True)
        try:
            left_out = unpack(wheel, pin, place)
        except KernwrightError:
            wheel.unlink()  # kept, it would be met again by the next try
            raise
        packages.append(
            Package.model_validate(
                {"name": pin.name, "version": pin.version, "group": request.group(pin), "wheel": wheel.name}
                | {"sha256": sha256(wheel), "bytes": folder_bytes(place), "left_out": left_out}
                | {"entries": sorted(path.name for path in place.iterdir())}
            )
        )
    packages += [_baseline_package(tree, request, shop, say) for tree in request.baselines]
    if request.package:
        packages.append(_own_package(shop / "unpacked" / OWN))
    return packages


def _fetched(
    request: BundleRequest, previous: Manifest | None, shop: Path, say: Callable[[str], None]
) -> dict[Pin, Path]:
    # What an interrupted run for another machine left must not be taken for this one's.
    key = hashlib.sha256(request.target.model_dump_json().encode()).hexdigest()[:12]
    folder = shop / f"wheels-{key}"
    wheels: dict[Pin, Path] = {}
    # The small ones at once, since starting pip takes longer than they do; those that may be large one by one, so that
    # an interruption costs one.
    for batch in ([*request.core, *request.tests], *([pin] for pin in request.more)):
        if batch:
            say(f"fetching {batch[0] if len(batch) == 1 else f'{len(batch)} wheels'} for {request.target}")
            locked = {_locked(pin, previous, request.target): pin for pin in batch}
            found = fetch(list(locked), request.target, request.source, folder)
            wheels |= {pin: found[lock] for lock, pin in locked.items()}
    return wheels


def _locked(pin: Pin, previous: Manifest | None, target: Target) -> Pin:
    """A version that was bundled before must still be the same file."""
    if previous is None or previous.target != target or pin.hashes:
        return pin
    before = tuple(p.sha256 for p in previous.packages if p.wheel and (p.name, p.version) == (pin.name, pin.version))
    return dataclasses.replace(pin, hashes=before)


def _baseline_package(tree: Tree, request: BundleRequest, shop: Path, say: Callable[[str], None]) -> Package:
    """A published baseline, compressed: the store unpacks it on the other machine, and checks it against the lock."""
    found = Store().fetch(tree, request.source, say)
    say(f"compressing {tree}")
    archive = shop / f"{tree.name}.archive"
    size = archive_tree(found, archive)
    most = max(1, request.part_bytes // PIECES_A_PART) if request.part_bytes else size
    cut_folder = shop / "pieces"
    cut_folder.mkdir(exist_ok=True)
    for number, piece in enumerate(cut(archive, most, partial(piece_name, tree), cut_folder), 1):
        place = shop / "unpacked" / tree.name / str(number) / CARRIED
        place.mkdir(parents=True)
        piece.rename(place / piece.name)
    archive.unlink()
    first = tree.wheels[0]
    return Package(
        name=tree.name, version=first.version, group="baselines", wheel=first.file,
        sha256=tree.digest, bytes=size, entries=[CARRIED],
    )  # fmt: skip


def _own_package(place: Path) -> Package:
    files = own_files()
    for name, source in files.items():
        target = place / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    return Package(
        name=OWN, version=__version__, group="core", wheel=None,
        sha256=digest_of(files), bytes=folder_bytes(place), entries=[OWN],
    )  # fmt: skip


def _assemble(request: BundleRequest, packages: list[Package], shop: Path) -> Manifest:
    tree = shop / "tree"
    loads = [load for package in packages for load in _loads(package, shop / "unpacked" / package.name)]
    packed = pack(loads, request.part_bytes)
    parts = []
    for number, loads_of_part in enumerate(packed, 1):
        name = "." if request.part_bytes is None else f"part-{number}"
        place = tree / name
        place.mkdir(parents=True)
        for load in loads_of_part:
            for folder in load.folders:
                _merge(folder, place)
        names = sorted({name for load in loads_of_part for name in load.names})
        parts.append(Part(folder=name, bytes=folder_bytes(place), digest=part_digest(place), packages=names))
    manifest = Manifest(
        kernwright=__version__, date=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), target=request.target,
        part_bytes=request.part_bytes, packages=packages, parts=parts,
    )  # fmt: skip
    (tree / MANIFEST).write_text(manifest.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return manifest


def _loads(package: Package, folder: Path) -> list[Load]:
    """What must stay together of a package: all of it, but for a baseline's pieces."""
    if package.group == "baselines":
        return [Load([package.name], [piece], folder_bytes(piece)) for piece in sorted(folder.iterdir())]
    regular = {entry for entry in package.entries if (folder / entry / "__init__.py").is_file()}
    return [Load([package.name], [folder], package.bytes, regular)]


def _merge(source: Path, place: Path) -> None:
    for path in sorted(source.rglob("*")):
        target = place / path.relative_to(source)
        if path.is_dir():
            target.mkdir(exist_ok=True)
        elif target.exists() and target.read_bytes() != path.read_bytes():
            raise KernwrightError(
                f"{source.name} and another package both bring {path.relative_to(source)}", "bundle them apart"
            )
        else:
            path.replace(target)


def _put_in_place(shop: Path, folder: Path) -> None:
    if folder.exists():
        folder.rename(shop / "old")
    (shop / "tree").rename(folder)
