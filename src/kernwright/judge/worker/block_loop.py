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

from kernwright.judge.protocol.channel import DONE, RUN, WITH_PYTHON

NO_TENSOR = -2  # what a call returned, and the loop could not read
COMPILING_S = 60.0


class RaisedWhileWaiting(BaseException):
    """By a signal's handler. No request is to blame, so none is answered: the worker ends."""


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
    try:
        ctypes.PyDLL(str(library))  # where the judge cannot load it, as from a disk without programs, nor can a worker
    except OSError:
        return None
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
        try:
            subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=COMPILING_S)
            return library.read_bytes()
        except (OSError, subprocess.SubprocessError):
            return None


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
        ("waiting", c_int32),
    )


class BlockLoop:
    """Inside a worker, over its end of the pipe."""

    def __init__(self, library: str, descriptor: int) -> None:
        self._serve = ctypes.PyDLL(library).serve  # which holds Python's lock, and raises what a call raised
        self._descriptor = descriptor
        self._address = Tensor.data_ptr  # as it is before a side is loaded

    def serve(self, call: Any, slots: list[Any], kept: list[Any], has_outputs: bool) -> bool:
        """Runs blocks until the next frame is another one, which is still to be received. False: a call of the last one
        returned something that is no tensor; it is kept like all others."""
        work = _Work(
            self._descriptor, RUN | DONE << 8, WITH_PYTHON, has_outputs, call, slots, kept, Tensor, tuple, list,
            self._address,
        )  # fmt: skip
        try:
            return bool(self._serve(ctypes.byref(work)) != NO_TENSOR)
        except Exception as error:
            if work.waiting:
                raise RaisedWhileWaiting from error
            raise
