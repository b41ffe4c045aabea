"""RunProvenance: the software, the hardware and the settings of one run of a model."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from kernwright.core.version import __version__
from kernwright.diagnose.doctor.framework import package_version

LIBRARIES = ("torch", "triton", "diffusers", "transformers", "sglang", "flashinfer-python", "numpy")
UNKNOWN_COMMIT = "N/A"


class RunProvenance(BaseModel):
    """The facts that a reader needs to repeat a run or to check it."""

    model_config = ConfigDict(extra="forbid")

    version: str = __version__
    label: str = ""
    preset: str = ""
    workload: dict[str, Any] = Field(
        default_factory=dict,
        description="what the run computed: resolution, frames, steps, layers, dtype; runs that differ in it are not "
        "comparable",
    )
    settings: dict[str, Any] = Field(
        default_factory=dict, description="how it was computed: compile mode, backends, swap; runs may differ in it"
    )
    command: str = ""
    libraries: dict[str, str] = Field(default_factory=dict)
    gpus: list[str] = Field(default_factory=list, description="names of the GPUs of the run; empty for a CPU")
    machine: dict[str, Any] = Field(default_factory=dict, description="the report of `kernwright doctor`")
    gradients: bool = Field(default=False, description="whether autograd recorded the run")
    profiled: bool = Field(default=False, description="whether a profiler ran; such a run is no benchmark")
    synchronised: bool = Field(default=True, description="whether stages end with the work that they launched")
    series: str = Field(default="", description="runs that took turns have the same series")
    turn: int | None = Field(default=None, description="number within the series; equal turns of two labels are a pair")

    @property
    def comparable(self) -> dict[str, Any]:
        """The facts that must be equal in runs that are compared."""
        return {"preset": self.preset, "gpus": self.gpus, **self.workload}


def collect_provenance(**given: Any) -> RunProvenance:
    """Return the provenance of this process. Command, libraries and GPUs are detected.

    Args:
        given: further fields of `RunProvenance`. They take precedence over detected ones.
    """
    found = {"command": command_line(), "libraries": library_versions(), "gpus": gpu_names()}
    return RunProvenance(**found | given)


def command_line() -> str:
    return shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])


def library_versions() -> dict[str, str]:
    installed = {name: version for name in LIBRARIES if (version := package_version(name))}
    return {"python": platform.python_version(), **installed}


def gpu_names() -> list[str]:
    """Return the names of the GPUs that torch uses. A process that has not imported torch uses none."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return []
    return [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]


@cache
def commit_hash(folder: Path = Path(__file__).parents[2]) -> str:
    """Return the commit of the checkout that a folder of sources belongs to, with `-dirty` if it has changes."""
    quiet = {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0"}

    def git(*words: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=10, env=os.environ | quiet
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    if git("ls-files", "--error-unmatch", "__init__.py") is None:  # an installed package inside another checkout
        return UNKNOWN_COMMIT
    commit = git("rev-parse", "HEAD")
    if commit is None:
        return UNKNOWN_COMMIT
    return f"{commit}-dirty" if git("status", "--porcelain", "--untracked-files=no", ".") else commit
