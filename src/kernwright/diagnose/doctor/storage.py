"""Storage: whether the folders of results and caches can be written, and how much space is left for them."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from kernwright.diagnose.doctor.finding import Finding
from kernwright.diagnose.perf_dump.dump_files import default_dump_root
from kernwright.ledger.ledger import default_ledger_root

GIB = 1 << 30
LEAST_FREE = 1 * GIB  # a trace and its report need hundreds of MB
LOW_FREE = 20 * GIB  # the weights of a diffusion model have 10 to 130 GB


def used_folders() -> dict[str, Path]:
    """Return the folders that runs write to, by purpose."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    triton = os.environ.get("TRITON_CACHE_DIR") or Path(os.environ.get("TRITON_HOME") or Path.home()) / ".triton/cache"
    builds = os.environ.get("KERNWRIGHT_CACHE") or cache / "kernwright"
    folders = {
        "perf dumps": default_dump_root(),
        "ledger": default_ledger_root(),
        "built kernels": Path(builds),
        "Triton's cache": Path(triton),
        "model weights": hub_folder(),
        "temporary files": Path(tempfile.gettempdir()),
    }
    return {purpose: folder.expanduser().absolute() for purpose, folder in folders.items()}


def hub_folder() -> Path:
    """Return the folder where Hugging Face's libraries keep downloaded models."""
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "huggingface")
    return Path(os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE") or Path(home, "hub"))


def check_folders(folders: dict[str, Path]) -> Finding:
    """Report the folders that cannot be written. A folder that does not exist yet is tried at its nearest parent."""
    refused = {purpose: problem for purpose, folder in folders.items() if (problem := write_problem(folder))}
    details = {"folders": {purpose: str(folder) for purpose, folder in folders.items()}, "refused": refused}
    if not refused:
        return Finding(check="folders", status="ok", found=f"{len(folders)} can be written", details=details)
    listed = "; ".join(f"{purpose}: {folders[purpose]}: {problem}" for purpose, problem in refused.items())
    return Finding(
        check="folders",
        status="problem",
        found=f"{len(refused)} of {len(folders)} cannot be written",
        cause=listed,
        remedy="make them writable for this user, or choose others with KERNWRIGHT_DUMPS, KERNWRIGHT_LEDGER, "
        "KERNWRIGHT_CACHE, TRITON_CACHE_DIR, HF_HOME and TMPDIR",
        details=details,
    )


def write_problem(folder: Path) -> str:
    """Return the reason why no file can be created in a folder, or "". A file is tried: root passes permission checks.

    Nothing is left behind, and a missing folder is not created.
    """
    place = existing_parent(folder)
    if not place.is_dir():
        return f"{place} is a file"
    try:
        with tempfile.TemporaryFile(dir=place) as stream:
            stream.write(b"0")
    except OSError as error:
        return f"{place}: {error.strerror or error}"
    return ""


def check_disk(folders: dict[str, Path]) -> Finding:
    """Report the free space of the file systems that the folders lie on."""
    free: dict[int, tuple[int, list[str]]] = {}
    for purpose, folder in folders.items():
        place = existing_parent(folder)
        try:
            device, left = place.stat().st_dev, shutil.disk_usage(place).free
        except OSError:
            continue  # `check_folders` reports it
        free.setdefault(device, (left, []))[1].append(purpose)
    details = {"free_gib": {purpose: round(left / GIB, 1) for left, held in free.values() for purpose in held}}
    found = ", ".join(f"{left / GIB:.1f} GiB free ({', '.join(held)})" for left, held in sorted(free.values()))
    least = min((left for left, _ in free.values()), default=LOW_FREE)
    for_weights = details["free_gib"].get("model weights", LOW_FREE)
    if least < LEAST_FREE:
        cause, status = f"less than {LEAST_FREE // GIB} GiB is left on a file system that runs write to", "problem"
    elif for_weights * GIB < LOW_FREE:
        cause, status = f"less than {LOW_FREE // GIB} GiB is left for model weights", "warning"
    else:
        return Finding(check="disk", status="ok", found=found, details=details)
    return Finding(
        check="disk",
        status="problem" if status == "problem" else "warning",
        found=found,
        cause=cause,
        remedy="free space, or choose folders on another disk (HF_HOME for model weights, TMPDIR, KERNWRIGHT_DUMPS)",
        details=details,
    )


def existing_parent(folder: Path) -> Path:
    """Return the nearest path that exists: the folder itself or one of its parents."""
    while not os.path.lexists(folder) and folder.parent != folder:
        folder = folder.parent
    return folder
