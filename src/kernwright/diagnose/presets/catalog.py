"""Find presets: those of the package, those of a user's folders, and single files."""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path

from kernwright.core.errors import KernwrightError, did_you_mean
from kernwright.diagnose.presets.preset import Preset
from kernwright.tasks.files import read_toml

VARIABLE = "KERNWRIGHT_PRESETS"
_REMEDY = "name a preset file, as docs/diagnose.md describes it"


def preset_folders() -> list[Path]:
    """Return the folders of presets: those of the user come first."""
    own = [Path(part).expanduser() for part in os.environ.get(VARIABLE, "").split(os.pathsep) if part]
    return [*own, Path(str(files("kernwright.diagnose.presets")))]


def list_presets() -> dict[str, Path]:
    """Return the files of all presets, by name. A user's preset hides one of the package with the same name."""
    found: dict[str, Path] = {}
    for folder in preset_folders():
        if not folder.is_dir():
            raise KernwrightError(f"{VARIABLE} names {folder}, which is not a folder", f"correct or unset {VARIABLE}")
        for path in sorted(folder.glob("*.toml")):
            found.setdefault(path.stem, path)
    return dict(sorted(found.items()))


def load_preset(path: Path) -> Preset:
    """Return the preset of a file.

    Raises:
        BadFile: with every problem of the file.
    """
    return read_toml(path, Preset, _REMEDY)


def find_preset(name_or_path: str) -> tuple[str, Preset]:
    """Return the name and the content of a preset, by its name or by the path of its file."""
    if name_or_path.endswith(".toml"):
        return Path(name_or_path).stem, load_preset(Path(name_or_path))
    known = list_presets()
    if name_or_path not in known:
        listed = f"`kernwright denoise --list` shows all: {', '.join(known)}"
        raise KernwrightError(f"no preset named {name_or_path!r}", did_you_mean(name_or_path, known, listed))
    return name_or_path, load_preset(known[name_or_path])
