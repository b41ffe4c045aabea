"""BlockLoop: the native loop of a worker, which runs blocks of calls without Python between the judge and the calls.

The judge builds it where there is a C compiler (`judge.device.block_loop_build`). Without one, or on a GPU, the worker
runs the same loop in Python.
"""

from __future__ import annotations

import ctypes
from ctypes import c_int32, py_object
from typing import Any

from torch import Tensor

from kernwright.judge.protocol.frames import DONE, RUN, WITH_PYTHON

NO_TENSOR = -2  # a call returned something that is no tensor


class RaisedWhileWaiting(BaseException):
    """A signal handler raised while the loop waited. No request caused it, so the worker ends."""


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
    """The native loop over this worker's end of the pipe."""

    def __init__(self, library: str, descriptor: int) -> None:
        self._serve = ctypes.PyDLL(library).serve  # holds the interpreter lock and raises what a call raised
        self._descriptor = descriptor
        self._address = Tensor.data_ptr  # the original, before a side could replace it

    def serve(self, call: Any, slots: list[Any], kept: list[Any], has_outputs: bool) -> bool:
        """Run blocks until a frame of another kind is next in the pipe.

        Return False if a call of the last block returned something that is no tensor. It is kept like all results.
        """
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
