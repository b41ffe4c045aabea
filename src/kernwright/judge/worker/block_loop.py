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

NO_TENSOR = -2  # what a call returned, and the loop could not read


class RaisedWhileWaiting(BaseException):
    """By a signal's handler. No request is to blame, so none is answered: the worker ends."""


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
