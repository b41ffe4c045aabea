"""Bundle: a folder for PYTHONPATH with everything that Kernwright needs except torch and what torch depends on.

A bundle is made in ``<folder>.partial`` and moved to its place as a whole. An interrupted run leaves the old bundle or
none, and keeps the finished downloads for the next attempt.
"""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kernwright.bundle.manifest import MANIFEST, Manifest, Package, Part, check_bundle, part_digest, read_manifest
from kernwright.bundle.own_files import own_files
from kernwright.bundle.parts import PackageGroup, pack, require_room
from kernwright.core.errors import EnvironmentProblem, KernwrightError
from kernwright.core.version import __version__
from kernwright.packages.archive import cut
from kernwright.packages.archive import pack as archive_tree
from kernwright.packages.download import WheelSource, fetch
from kernwright.packages.files import digest_of, folder_bytes, sha256, write_problem
from kernwright.packages.pin import Pin
from kernwright.packages.store import CARRIED, Store, piece_name
from kernwright.packages.tree import Tree
from kernwright.packages.wheel import unpack_or_delete
from kernwright.packages.wheel_target import WheelTarget

OWN = "kernwright"
PIECES_A_PART = 4  # archives of baselines are cut into smaller pieces than a part, so that parts are filled well


@dataclass(frozen=True)
class BundleRequest:
    """The content of a bundle, its target and its place."""

    folder: Path
    target: WheelTarget
    core: tuple[Pin, ...]
    tests: tuple[Pin, ...] = ()
    more: tuple[Pin, ...] = ()
    baselines: tuple[Tree, ...] = ()
    package: bool = True  # include Kernwright itself
    part_bytes: int | None = None
    source: WheelSource = dataclasses.field(default_factory=WheelSource)

    def pins(self) -> list[Pin]:
        return [*self.core, *self.tests, *self.more]

    def group(self, pin: Pin) -> str:
        return "core" if pin in self.core else "tests" if pin in self.tests else "more"


def make_bundle(request: BundleRequest, say: Callable[[str], None]) -> Manifest:
    """Make the bundle and return its manifest. A bundle that is already there and up to date is kept."""
    folder = request.folder.absolute()
    try:
        previous = _replaced_bundle(folder)
        if previous and _fits_request(previous, request, folder):
            say(f"{request.folder} is up to date")
            return previous
        with _workshop(folder) as shop:
            packages = _unpacked(request, previous, shop, say)
            manifest = _assemble(request, packages, shop)
            _put_in_place(shop, folder)
        return manifest
    except OSError as error:
        raise write_problem("the bundle", folder, error, "choose a folder that this user may write") from error


def _replaced_bundle(folder: Path) -> Manifest | None:
    """Return the manifest of the bundle to be replaced, or None. Refuse a folder that holds anything else."""
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
            f"{folder} holds files that do not belong to the bundle: {', '.join(strange[:5])}",
            "move it away, or name another folder",
        )
    return manifest


def _fits_request(manifest: Manifest, request: BundleRequest, folder: Path) -> bool:
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
        or manifest.kernwright != __version__  # the version decides which files are left out
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
    """Lock and yield the folder that a bundle is made in. After a failure it stays if it holds downloads."""
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
        left_out = unpack_or_delete(wheel, pin, place)
        packages.append(
            Package.model_validate(
                {"name": pin.name, "version": pin.version, "group": request.group(pin), "wheel": wheel.name}
                | {"sha256": sha256(wheel), "bytes": folder_bytes(place), "left_out": left_out}
                | {"entries": sorted(path.name for path in place.iterdir())}
            )
        )
    own = [_own_package(shop / "unpacked" / OWN)] if request.package else []
    # Compression takes minutes, so packages that no part can hold are refused before it. Archives are cut to fit.
    require_room(_groups([*packages, *own], shop), request.part_bytes)
    return packages + [_baseline_package(tree, request, shop, say) for tree in request.baselines] + own


def _fetched(
    request: BundleRequest, previous: Manifest | None, shop: Path, say: Callable[[str], None]
) -> dict[Pin, Path]:
    # Downloads of an interrupted run for another target must not be used for this one.
    key = hashlib.sha256(request.target.model_dump_json().encode()).hexdigest()[:12]
    folder = shop / f"wheels-{key}"
    wheels: dict[Pin, Path] = {}
    # Small wheels are fetched together, because starting pip takes longer than fetching them. Wheels that may be large
    # are fetched one at a time, so that an interruption loses at most one.
    for batch in ([*request.core, *request.tests], *([pin] for pin in request.more)):
        if batch:
            say(f"fetching {batch[0] if len(batch) == 1 else f'{len(batch)} wheels'} for {request.target}")
            locked = {_locked(pin, previous, request.target): pin for pin in batch}
            found = fetch(list(locked), request.target, request.source, folder)
            wheels |= {pin: found[lock] for lock, pin in locked.items()}
    return wheels


def _locked(pin: Pin, previous: Manifest | None, target: WheelTarget) -> Pin:
    """Return the pin with the hash of the previous bundle: the same version must be the same file."""
    if previous is None or previous.target != target or pin.hashes:
        return pin
    before = tuple(p.sha256 for p in previous.packages if p.wheel and (p.name, p.version) == (pin.name, pin.version))
    return dataclasses.replace(pin, hashes=before)


def _baseline_package(tree: Tree, request: BundleRequest, shop: Path, say: Callable[[str], None]) -> Package:
    """Compress a published baseline. The store of the other machine unpacks it and checks it against the lock."""
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
    parts = []
    for number, groups in enumerate(pack(_groups(packages, shop), request.part_bytes), 1):
        name = "." if request.part_bytes is None else f"part-{number}"
        place = tree / name
        place.mkdir(parents=True)
        for group in groups:
            for folder in group.folders:
                _merge(folder, place)
        names = sorted({name for group in groups for name in group.names})
        parts.append(Part(folder=name, bytes=folder_bytes(place), digest=part_digest(place), packages=names))
    manifest = Manifest(
        kernwright=__version__, date=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), target=request.target,
        part_bytes=request.part_bytes, packages=packages, parts=parts,
    )  # fmt: skip
    (tree / MANIFEST).write_text(manifest.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return manifest


def _groups(packages: list[Package], shop: Path) -> list[PackageGroup]:
    """Return the units that may go to different parts: each piece of a baseline, and each other package."""
    return [group for package in packages for group in _units(package, shop / "unpacked" / package.name)]


def _units(package: Package, folder: Path) -> list[PackageGroup]:
    if package.group == "baselines":
        return [PackageGroup([package.name], [piece], folder_bytes(piece)) for piece in sorted(folder.iterdir())]
    regular = {entry for entry in package.entries if (folder / entry / "__init__.py").is_file()}
    return [PackageGroup([package.name], [folder], package.bytes, regular)]


def _merge(source: Path, place: Path) -> None:
    for path in sorted(source.rglob("*")):
        target = place / path.relative_to(source)
        if path.is_dir():
            target.mkdir(exist_ok=True)
        elif target.exists() and target.read_bytes() != path.read_bytes():
            raise KernwrightError(
                f"{source.name} and another package both bring {path.relative_to(source)}",
                "bundle them separately",
            )
        else:
            path.replace(target)


def _put_in_place(shop: Path, folder: Path) -> None:
    if folder.exists():
        folder.rename(shop / "old")
    (shop / "tree").rename(folder)
