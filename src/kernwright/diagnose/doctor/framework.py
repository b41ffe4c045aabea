"""Frameworks: torch and Triton, found without an import."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import re
from pathlib import Path

from kernwright.diagnose.doctor.finding import Finding

_CUDA = re.compile(r"^cuda\s*(?::[^=\n]*)?=\s*(?:'([^']*)'|\"([^\"]*)\"|None)", re.MULTILINE)
_LEAST_TORCH = (2, 11)


def package_folder(name: str) -> Path | None:
    """Return the folder of an installed package, or None. The package is not imported."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    places = [Path(place) for place in spec.submodule_search_locations or ()]
    places += [Path(spec.origin).parent] if spec.origin and not places else []
    return next((place for place in places if place.is_dir()), None)


def package_version(name: str) -> str:
    """Return the version of an installed distribution, or ""."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def torch_cuda() -> str | None:
    """Return the CUDA version that torch was built for: "" for a CPU build, None if torch is missing or unreadable."""
    folder = package_folder("torch")
    try:
        text = (folder / "version.py").read_text(encoding="utf-8") if folder else ""
    except OSError:
        return None
    match = _CUDA.search(text)
    return (match[1] or match[2] or "") if match else None


def check_python() -> Finding:
    version = platform.python_version()
    return Finding(check="python", status="ok", found=f"{version}, {platform.platform()}", details={"version": version})


def check_torch() -> Finding:
    folder, version = package_folder("torch"), package_version("torch")
    remedy = "install PyTorch 2.11 or newer: https://pytorch.org/get-started/locally"
    if folder is None:
        return Finding(
            check="torch", status="problem", found="not installed", cause="every run needs it", remedy=remedy
        )
    cuda = torch_cuda()
    built_for = f"CUDA {cuda}" if cuda else "CPUs" if cuda == "" else "an unknown device"
    found = f"{version or 'version unknown'} for {built_for}"
    details = {"version": version, "cuda": cuda, "folder": str(folder)}
    if version and _numbers(version) < _LEAST_TORCH:
        return Finding(check="torch", status="problem", found=found, cause="is too old", remedy=remedy, details=details)
    return Finding(check="torch", status="ok", found=found, details=details)


def check_triton() -> Finding:
    folder, version = package_folder("triton"), package_version("triton")
    if folder is None:
        return Finding(
            check="triton",
            status="missing",
            found="not installed",
            cause="needed for Triton kernels and torch.compile on a GPU",
            remedy="pip install triton, in the version that belongs to the installed torch",
        )
    return Finding(
        check="triton",
        status="ok",
        found=version or "version unknown",
        details={"version": version, "folder": str(folder)},
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])
