"""sglang: the place where it is installed, and its native diffusion engine. It is not imported."""

from __future__ import annotations

import shutil
from pathlib import Path

from kernwright.diagnose.doctor.finding import Finding
from kernwright.diagnose.doctor.framework import package_folder, package_version

COMMAND = "sglang"
ENGINE = "multimodal_gen"  # the folder of the native diffusion engine
REMEDY = "pip install 'sglang[diffusion]'; `kernwright denoise` measures models without it"


def sglang_root() -> Path | None:
    """Return the root of sglang: of its checkout if it is installed from one, otherwise the package's folder."""
    folder = package_folder("sglang")
    if folder is None:
        return None
    return folder.parent.parent if folder.parent.name == "python" else folder  # a checkout has python/sglang


def check_sglang() -> Finding:
    folder, command = package_folder("sglang"), shutil.which(COMMAND)
    if folder is None and command is None:
        return Finding(
            check="sglang",
            status="missing",
            found="not installed",
            cause="needed by `kernwright run --preset`",
            remedy=REMEDY,
        )
    root, version = sglang_root(), package_version("sglang")
    details = {"root": str(root or ""), "version": version, "command": command}
    found = f"{version or 'version unknown'}, {root or command}"
    problem = ""
    if folder is not None and not (folder / ENGINE).is_dir():
        problem = f"{folder} has no {ENGINE}: this version or installation lacks the native diffusion engine"
    elif command is None:
        problem = f"the command `{COMMAND}` is not on PATH"
    if problem:
        return Finding(check="sglang", status="problem", found=found, cause=problem, remedy=REMEDY, details=details)
    return Finding(check="sglang", status="ok", found=found, details=details)
