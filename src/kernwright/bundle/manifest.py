"""Manifest: the content of a bundle and its origin, and the check that the bundle is complete."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from kernwright.core.errors import KernwrightError
from kernwright.packages.files import digest_of, named_files
from kernwright.packages.wheel_target import WheelTarget

MANIFEST = "bundle.json"


class Package(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str
    version: str
    group: Literal["core", "tests", "more", "baselines"]
    wheel: str | None = Field(description="file name; None for Kernwright itself, which is copied")
    sha256: str = Field(
        description="of the wheel; for Kernwright itself of the copied files, for a baseline of the kept files"
    )
    bytes: int = Field(description="unpacked size; for a baseline, the size of its archive")
    entries: list[str] = Field(description="top-level names that it brought")
    left_out: list[str] = Field(default_factory=list, description="patterns of files that are not needed to run")


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid")

    folder: str = Field(description="below the bundle; an entry for PYTHONPATH")
    bytes: int
    digest: str = Field(description="over the paths and the content of all its files")
    packages: list[str]


class Manifest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    format: Literal[1] = 1
    kernwright: str
    date: str
    target: WheelTarget
    part_bytes: int | None
    packages: list[Package]
    parts: list[Part]

    @property
    def core_bytes(self) -> int:
        return sum(package.bytes for package in self.packages if package.group == "core")

    @property
    def total_bytes(self) -> int:
        return sum(part.bytes for part in self.parts)

    def search_path(self, folder: Path) -> list[Path]:
        """Return the entries for PYTHONPATH."""
        return [folder / part.folder for part in self.parts]


def read_manifest(folder: Path) -> Manifest | None:
    """Return the manifest of a bundle, or None if it has no readable one."""
    try:
        return Manifest.model_validate_json((folder / MANIFEST).read_bytes())
    except (OSError, ValueError):
        return None


def part_digest(folder: Path) -> str:
    files = named_files(folder)
    files.pop(MANIFEST, None)  # the manifest holds the digest and is not part of it
    return digest_of(files)


def check_bundle(folder: Path) -> Manifest:
    """Return the manifest of a complete and unchanged bundle, else raise KernwrightError."""
    manifest = read_manifest(folder)
    if manifest is None:
        raise KernwrightError(
            f"{folder} is not a bundle: it has no readable {MANIFEST}", "make one: `kernwright bundle`"
        )
    for part in manifest.parts:
        place = folder / part.folder
        if not place.is_dir():
            raise KernwrightError(f"{place} is missing", "copy every part of the bundle")
        if part_digest(place) != part.digest:
            raise KernwrightError(f"{place} differs from the manifest: a file is missing or changed", "copy it again")
    return manifest
