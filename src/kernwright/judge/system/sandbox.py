"""Sandbox: the walls that a worker puts up around itself, by the judge's order, before foreign code runs in it."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from kernwright.core.errors import KernwrightError
from kernwright.judge.system.landlock import AllowedPaths, device_nodes
from kernwright.judge.system.linux import held_capabilities
from kernwright.judge.system.users import barred_folders, outermost, unreadable, user_for, why_no_other_user

NAMES = ("user", "network", "landlock", "seccomp", "processes")
OFF_VARIABLE = "KERNWRIGHT_WALLS_OFF"
SYSTEM = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt", "/proc", "/sys", "/nix/store",
    "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/ld.so.preload", "/etc/alternatives",
    "/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/localtime", "/etc/os-release", "/etc/nvidia",
)  # fmt: skip


@dataclass(frozen=True)
class Sandbox:
    """Orders for one worker. `off` names walls that are disabled on purpose, each with the reason."""

    scratch: str
    reads: tuple[str, ...] = ()
    user: int | None = None
    why_same_user: str = ""
    covered: tuple[str, ...] = ()
    off: Mapping[str, str] = field(default_factory=dict)
    for_gpu: bool = False

    @classmethod
    def around(
        cls, scratch: Path, reads: Sequence[Path] = (), off: Mapping[str, str] | None = None, for_gpu: bool = False
    ) -> Sandbox:
        """Create the scratch folder and choose its owner. `reads` is what this side needs in addition to Python."""
        scratch.mkdir(parents=True, exist_ok=True)
        left_out = disabled_walls() | dict(off or {})
        opened = [path for path in (*python_folders(), *reads) if path.exists()]
        user, covered, why_not = _choose_user(scratch, reads, opened, left_out)
        if user is not None:
            try:
                os.chown(scratch, user, user, follow_symlinks=False)
                scratch.chmod(0o700)
            except OSError as error:  # a file system without ownership
                user, covered, why_not = None, [], f"{scratch} cannot be given to another: {error.strerror}"
        if user is not None:
            opened = [path for path in opened if unreadable([path]) is None]
        return cls(
            scratch=str(scratch.absolute()),
            reads=tuple(dict.fromkeys(str(way) for path in opened for way in (path.absolute(), path.resolve()))),
            user=user,
            why_same_user=why_not,
            covered=tuple(covered),
            off=left_out,
            for_gpu=for_gpu,
        )

    def opened(self) -> AllowedPaths:
        """Return the paths that landlock allows. In /dev only harmless nodes are allowed: no disks, no shared memory.

        CUDA's driver names its threads through /proc and does not start without access to it.
        """
        own = (self.scratch, "/proc/self") if self.for_gpu else (self.scratch,)
        return AllowedPaths(reads=(*SYSTEM, *self.reads), writes=own, devices=device_nodes(), lists=("/dev",))

    def as_argument(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_argument(cls, text: str) -> Sandbox:
        fields: dict[str, Any] = json.loads(text)
        fields |= {name: tuple(fields[name]) for name in ("reads", "covered")}
        return cls(**fields)


def disabled_walls() -> dict[str, str]:
    """Return the walls that are disabled by the environment variable."""
    names = [name.strip() for name in os.environ.get(OFF_VARIABLE, "").split(",") if name.strip()]
    if unknown := [name for name in names if name not in NAMES]:
        raise KernwrightError(f"{OFF_VARIABLE}: no wall is called {unknown[0]!r}", f"the walls are: {', '.join(NAMES)}")
    return dict.fromkeys(names, f"switched off by {OFF_VARIABLE}")


def python_folders() -> list[Path]:
    """Return what every worker reads: Python, its libraries, this package, compilers and their libraries."""
    places = [
        *import_folders(),
        sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix, str(Path(sys.executable).resolve().parent),
        os.environ.get("CUDA_HOME", ""),
    ]  # fmt: skip
    for variable in ("PATH", "LD_LIBRARY_PATH"):
        places += os.environ.get(variable, "").split(os.pathsep)
    return [Path(place) for place in dict.fromkeys(places) if place.startswith("/") and Path(place).is_dir()]


def import_folders() -> list[str]:
    """Return the import folders of a worker: those of the judge, without the current folder and the script's folder.

    Python puts these two first by itself, and they may hold anything.
    """
    package = str(Path(__file__).resolve().parents[3])
    script = getattr(sys.modules["__main__"], "__file__", None)
    by_chance = {str(Path.cwd()), *([str(Path(script).resolve().parent)] if script else [])}
    by_chance -= set(os.environ.get("PYTHONPATH", "").split(os.pathsep))
    return list(
        dict.fromkeys([package, *(part for part in sys.path if part and part not in by_chance and Path(part).is_dir())])
    )


def _choose_user(
    scratch: Path, reads: Sequence[Path], opened: Sequence[Path], off: Mapping[str, str]
) -> tuple[int | None, list[str], str]:
    """Return a user for the worker and the folders to cover for it; or None and the reason."""
    if "user" in off:
        return None, [], off["user"]
    if why_not := why_no_other_user():
        return None, [], why_not
    essential = [*_essential_files(), *reads]
    if (path := unreadable(essential)) is not None:
        return None, [], f"{path} is not readable by others"
    barred = barred_folders([*essential, scratch])
    shown = {path.resolve() for path in opened if barred and unreadable([path]) is None}
    for folder in barred:
        if not shown.isdisjoint([folder, *folder.parents]):  # it would stay closed inside the cover
            return None, [], f"{folder} is closed to others"
    covered = outermost(barred)
    if covered and "SYS_ADMIN" not in held_capabilities():
        return None, [], f"{covered[0]} is closed to others, and root lacks CAP_SYS_ADMIN here to open a view of it"
    return user_for(scratch), covered, ""


def _essential_files() -> list[Path]:
    """Return the files without which no worker starts."""
    torch = importlib.util.find_spec("torch")
    found = [torch.origin] if torch is not None and torch.origin is not None else []
    return [Path(path) for path in (sys.executable, os.__file__, __file__, *found)]
