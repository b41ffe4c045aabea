"""BlockLoop: a worker's blocks of calls without Python on the way from the judge's order to the calls and back.

Built by the judge, where there is a C compiler; without one, or on a GPU, the worker program does the same in Python.
"""

from __future__ import annotations

import ctypes
import functools
import shutil
import subprocess
import tempfile
from ctypes import c_int32, py_object
from pathlib import Path
from typing import Any

from torch import Tensor

from kernwright.judge.channel import DONE, RUN, WITH_PYTHON

NO_TENSOR = -2  # what a call returned, and the loop could not read


def build_block_loop(folder: Path) -> Path | None:
    """Laid into a judgement's folder, where workers can read it."""
    if (compiled := _compiled()) is None:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)  # a worker may be another user
    library = folder / "block_loop.so"
    if not library.exists():
        library.write_bytes(compiled)
        library.chmod(0o755)
    return library


@functools.cache
def _compiled() -> bytes | None:
    """Once a process."""
    source = Path(__file__).with_name("block_loop.c")
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory(prefix="kernwright-loop-") as folder:
        library = Path(folder) / "block_loop.so"
        command = [compiler, "-O2", "-shared", "-fPIC", str(source), "-o", str(library)]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        return library.read_bytes() if done.returncode == 0 else None


class _Work(ctypes.Structure):
    _fields_ = (
        ("descriptor", c_int32),
        ("tags", c_int32),
        ("flags", c_int32),
        ("outputs", c_int32),
        ("call", py_object),
        ("slots", py_object),
        ("kept", py_object),
        ("tensor", py_object),
        ("tuple", py_object),
        ("list", py_object),
        ("address", py_object),
    )


class BlockLoop:
    """Inside a worker, over its end of the pipe."""

    def __init__(self, library: str, descriptor: int) -> None:
        self._serve = ctypes.PyDLL(library).serve  # which holds Python's lock, and raises what a call raised
        self._descriptor = descriptor
        self._address = Tensor.data_ptr  # as it is before a side is loaded

    def serve(self, call: Any, slots: list[Any], kept: list[Any], has_outputs: bool) -> bool:
        """Runs blocks until the next frame is another one, which is still to be received. False: a call returned
        something that is no tensor; it is the last thing kept."""
        work = _Work(
            self._descriptor, RUN | DONE << 8, WITH_PYTHON, has_outputs, call, slots, kept, Tensor, tuple, list,
            self._address,
        )  # fmt: skip
        return bool(self._serve(ctypes.byref(work)) != NO_TENSOR)
