"""The machine of a GPU check: the places of its packages, its device, and everything that the tests import.

Uses only the standard library, because it runs before anything else can be imported.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

# Runs in a separate process, so that a hanging driver does not prevent the archive.
PROBE = """
import importlib.util, json
needed = ("torch", "numpy", "pydantic", "tvm_ffi", "typer", "rich", "pytest", "hypothesis")
missing = [name for name in needed if importlib.util.find_spec(name) is None]
device, libraries, kernels = None, {}, None
if not missing:
    from kernwright.judge.record.provenance import library_versions
    libraries = library_versions()
if "torch" not in missing:
    import torch
    if torch.cuda.is_available():
        seen = torch.cuda.get_device_properties(0)
        device = {"name": seen.name, "capability": [seen.major, seen.minor], "memory_bytes": seen.total_memory,
                  "processors": seen.multi_processor_count, "cuda": torch.version.cuda,
                  "count": torch.cuda.device_count()}
        try:
            import pynvml
            pynvml.nvmlInit()
            device["driver"] = str(pynvml.nvmlSystemGetDriverVersion())
        except Exception as error:
            device["driver"] = f"unknown: {error}"
if not missing and device is not None:
    try:
        from kernwright.ops.builds import libraries as native
        from kernwright.runtime.target import Target
        target = Target("sm_{}{}".format(*device["capability"]))
        all_of_them = native(target)
        kernels = {"all": len(all_of_them), "built": sum(own.find(target) is not None for own in all_of_them)}
    except Exception as error:  # the tests will say more of it
        kernels = {"all": 0, "built": 0, "unknown": str(error)}
print(json.dumps({"missing": missing, "device": device, "libraries": libraries, "kernels": kernels}))
"""


class CannotRun(Exception):
    """Return the requirements that this machine lacks, each with its remedy."""


def search_path(bundle: Path) -> list[Path]:
    """Return the search path: the checkout before the bundle, so that a Kernwright in the bundle never hides the tested
    one."""
    places = [ROOT / "src"]
    try:
        manifest = json.loads((bundle / "bundle.json").read_text())
        wanted, parts = manifest["target"]["python"], [bundle / part["folder"] for part in manifest["parts"]]
    except FileNotFoundError:
        return places
    except (ValueError, KeyError, TypeError):
        raise CannotRun(f"{bundle}/bundle.json cannot be read\n  remedy: carry the bundle over again") from None
    if wanted != f"{sys.version_info.major}.{sys.version_info.minor}":
        here = ".".join(map(str, sys.version_info[:2]))
        raise CannotRun(
            f"{bundle} is for Python {wanted}, this is {here}\n"
            f"  remedy: make PYTHON=python{wanted} gpu, or another bundle"
        )
    if absent := [str(part) for part in parts if not part.is_dir()]:
        raise CannotRun(f"{', '.join(absent)} is missing\n  remedy: carry every part of the bundle over")
    return places + parts


def environment(places: list[Path]) -> dict[str, str]:
    inherited = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    paths = [*map(str, places), *inherited]
    scripts = [str(place / "bin") for place in places if (place / "bin").is_dir()]
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),
        # After the machine's own tools: a bundled ninja is for a machine without one.
        "PATH": os.pathsep.join([os.environ.get("PATH", os.defpath), *scripts]),
        "PYTHONUNBUFFERED": "1",
    }


def look_around(environment: dict[str, str], seconds: float, allow_cpu: bool) -> dict[str, Any]:
    """Return the device and the installed packages. Raise if the tests cannot run."""
    command = [sys.executable, "-c", PROBE]
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=seconds, check=False)
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        raise CannotRun(
            f"torch did not find a device in {seconds:.0f} s\n  remedy: does `nvidia-smi` answer?"
        ) from None
    except (ValueError, IndexError):
        said = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
        raise CannotRun(
            f"torch cannot be imported: {said[0]}\n  remedy: make PYTHON=... gpu, with one that can"
        ) from None
    if found["missing"]:
        raise CannotRun(
            f"{sys.executable} lacks {', '.join(found['missing'])}\n"
            "  remedy: torch and numpy must be this machine's (make PYTHON=... gpu chooses another Python);\n"
            "  the rest comes from `kernwright bundle bundle --python 3.12 --with-tests`, where there is a network"
        )
    if found["device"] is None and not allow_cpu:
        raise CannotRun("no CUDA device is seen here\n  remedy: run it on a GPU machine; `make test` needs none")
    return found
