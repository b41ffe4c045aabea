"""Build the native loop of CPU workers (`judge.worker.block_loop`)."""

from __future__ import annotations

import ctypes
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

COMPILING_S = 60.0


def build_block_loop(folder: Path) -> Path | None:
    """Write the native loop into a judgement's folder, where workers can read it. Return None if it cannot be built."""
    if (compiled := _compiled()) is None:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)  # a worker may be another user
    library = folder / "block_loop.so"
    if not library.exists():
        library.write_bytes(compiled)
        library.chmod(0o755)
    try:
        ctypes.PyDLL(str(library))  # a disk mounted without execution fails here, and would fail in a worker
    except OSError:
        return None
    return library


@functools.cache
def _compiled() -> bytes | None:
    """Return the compiled loop, built once per process."""
    source = Path(__file__).parents[1] / "worker" / "block_loop.c"
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory(prefix="kernwright-loop-") as folder:
        library = Path(folder) / "block_loop.so"
        command = [compiler, "-O2", "-shared", "-fPIC", str(source), "-o", str(library)]
        try:
            subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=COMPILING_S)
            return library.read_bytes()
        except (OSError, subprocess.SubprocessError):
            return None
