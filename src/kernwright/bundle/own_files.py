"""The files of Kernwright itself, from a checkout, an installed package or another bundle."""

from __future__ import annotations

from pathlib import Path

from kernwright.packages.files import named_files

TASKS = "_tasks"  # folders of the tasks and of the wiki in a built package
WIKI = "_wiki"
CONSTRAINTS = "_constraints.txt"


def package_folder() -> Path:
    return Path(__file__).resolve().parents[1]


def constraints() -> Path | None:
    """Return the file with the versions that the tests ran with, or None."""
    places = [root / "constraints.txt" for root in _checkout()] + [package_folder() / CONSTRAINTS]
    return next((place for place in places if place.is_file()), None)


def own_files() -> dict[str, Path]:
    """Return all files of Kernwright, its tasks and its wiki included, by their path in a bundle."""
    files = {f"kernwright/{name}": path for name, path in named_files(package_folder()).items()}
    for root in _checkout():
        files |= {f"kernwright/{TASKS}/{name}": path for name, path in named_files(root / "tasks").items()}
        files |= {f"kernwright/{WIKI}/{name}": path for name, path in named_files(root / "docs" / "wiki").items()}
    if found := constraints():
        files[f"kernwright/{CONSTRAINTS}"] = found
    return files


def _checkout() -> list[Path]:
    """Return the root of the checkout that the package is imported from, or an empty list."""
    source = package_folder().parent
    return [source.parent] if source.name == "src" and (source.parent / "pyproject.toml").is_file() else []
