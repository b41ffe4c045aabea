"""SameProgram: whether a client and a server have the same code, Python and environment."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from kernwright.core.digest import digest_of
from kernwright.judge.record.file_snapshot import FileSnapshot

PACKAGE = Path(__file__).resolve().parents[1]
# Variables that workers, compilers and libraries read.
READ_BY_JUDGE = (
    "PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "TMPDIR", "HOME", "CUDA_HOME", "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER", "CC", "CXX", "TRITON_INTERPRET", "OMP_NUM_THREADS",
)  # fmt: skip
PREFIX = "KERNWRIGHT_"
# The client resolves the paths that these name, or only the command line reads them.
RESOLVED = frozenset({"KERNWRIGHT_LEDGER", "KERNWRIGHT_TASKS", "KERNWRIGHT_SERVERS", "KERNWRIGHT_TRACE"})


@dataclass(frozen=True)
class SameProgram:
    """The code and the environment of this process."""

    code: str
    environment: dict[str, str]

    @classmethod
    def here(cls) -> SameProgram:
        """Return those of this process. The files of the code may be newer than the code that runs."""
        names = {name for name in os.environ if name.startswith(PREFIX)} - RESOLVED
        found = {name: os.environ[name] for name in (*READ_BY_JUDGE, *names) if name in os.environ}
        code = {str(path): digest for path, digest in FileSnapshot.over(PACKAGE).digests.items()}
        return cls(code=digest_of(code), environment={"python": sys.executable} | found)

    def difference(self, code: str, environment: dict[str, str]) -> str | None:
        """Return what differs between this server and a client; None if nothing does."""
        if code != self.code:
            return "Kernwright was changed after the server started: end the server and start it again"
        names = sorted(self.environment.keys() | environment.keys())
        different = [name for name in names if self.environment.get(name) != environment.get(name)]
        if different:
            return f"the server was started with another {', '.join(different)}: end it and start it again from here"
        return None
