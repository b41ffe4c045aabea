"""Calls of the CUDA driver that torch does not offer: memory that is shared between processes by descriptor.

A buffer made here is a separate physical allocation. Its descriptor is sent to a worker like any open file, so neither
another user nor a namespace is an obstacle, and the worker sees that buffer and nothing else. (Handles of
`cudaIpcGetMemHandle` export whatever shares the allocation, and require both processes in one namespace.)
"""

from __future__ import annotations

import ctypes
import os
from ctypes import byref, c_int, c_size_t, c_ubyte, c_uint64, c_ushort, c_void_p
from functools import cache
from typing import Any

PINNED, DEVICE, POSIX_DESCRIPTOR, READ_WRITE = 1, 1, 1, 3
HOST_MEMORY, DEVICE_MEMORY, SPIN = 1, 2, 1
GRANULARITY = 2 * 2**20  # on every NVIDIA GPU with virtual memory management
MEMORY_CLOCK_KHZ, BUS_WIDTH_BITS = 36, 37
VMM_WITH_DESCRIPTORS = 103


class CudaDriverError(Exception):
    """A driver call failed. `name` is the driver's name of the error."""

    def __init__(self, call: str, name: str) -> None:
        self.name = name
        super().__init__(f"{call}: {name}")


class _Location(ctypes.Structure):
    _fields_ = (("type", c_int), ("id", c_int))


class _Properties(ctypes.Structure):
    _fields_ = (
        ("type", c_int),
        ("requested", c_int),
        ("location", _Location),
        ("windows", c_void_p),
        ("compression", c_ubyte),
        ("rdma", c_ubyte),
        ("usage", c_ushort),
        ("reserved", c_ubyte * 4),
    )


class _Access(ctypes.Structure):
    _fields_ = (("location", _Location), ("flags", c_int))


class _Copy2D(ctypes.Structure):
    _fields_ = (
        ("from_x", c_size_t),
        ("from_y", c_size_t),
        ("from_kind", c_int),
        ("from_host", c_void_p),
        ("from_device", c_uint64),
        ("from_array", c_void_p),
        ("from_pitch", c_size_t),
        ("to_x", c_size_t),
        ("to_y", c_size_t),
        ("to_kind", c_int),
        ("to_host", c_void_p),
        ("to_device", c_uint64),
        ("to_array", c_void_p),
        ("to_pitch", c_size_t),
        ("width", c_size_t),
        ("rows", c_size_t),
    )


@cache
def _library() -> Any:
    return ctypes.CDLL("libcuda.so.1")


def call(name: str, *arguments: Any) -> None:
    status = getattr(_library(), name)(*arguments)
    if status:
        text = ctypes.c_char_p()
        _library().cuGetErrorName(status, byref(text))
        raise CudaDriverError(name, (text.value or b"unknown").decode())


def attribute(device: int, number: int) -> int:
    value, handle = c_int(), c_int()
    call("cuInit", 0)
    call("cuDeviceGet", byref(handle), device)
    call("cuDeviceGetAttribute", byref(value), c_int(number), handle)
    return value.value


def wait_awake(device: int) -> None:
    """Make this process poll when it waits for the device, because an interrupt takes longer than many calls.

    Call this before torch uses the device.
    """
    handle = c_int()
    call("cuInit", 0)
    call("cuDeviceGet", byref(handle), device)
    try:
        call("cuDevicePrimaryCtxSetFlags_v2", handle, ctypes.c_uint(SPIN))
    except CudaDriverError as error:
        if error.name != "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE":  # the context exists already and keeps its flags
            raise


def reset_persisting_l2() -> None:
    """Reset persisting lines of the L2 cache to normal ones."""
    call("cuCtxResetPersistingL2Cache")


def start_to_device(host: int, device: int, size: int) -> None:
    """Start a copy out of pinned memory, without waiting for it."""
    call("cuMemcpyHtoDAsync_v2", c_uint64(device), c_void_p(host), c_size_t(size), c_void_p(0))


def settle() -> None:
    """Wait until all work of this process on its device is done. This has less overhead than torch's function."""
    call("cuCtxSynchronize")


class RowsToHost:
    """A copy of `width` bytes out of every `pitch` into pinned memory, by one command to a copy engine.

    It is prepared before the source address is known.
    """

    def __init__(self, host: int, pitch: int, width: int, rows: int) -> None:
        self._copy = _Copy2D(
            from_kind=DEVICE_MEMORY,
            from_pitch=max(pitch, width),
            to_kind=HOST_MEMORY,
            to_host=host,
            to_pitch=width,
            width=width,
            rows=rows,
        )

    def start(self, device: int) -> None:
        """Start the copy, without waiting for it."""
        self._copy.from_device = device
        call("cuMemcpy2DAsync_v2", byref(self._copy), c_void_p(0))


def rounded(size: int) -> int:
    return -(-size // GRANULARITY) * GRANULARITY


class LentMemory:
    """A buffer on the device, mapped into this process: made here, or opened from a received descriptor.

    The primary context of the device must be current, so use torch on that device first.
    """

    def __init__(self, handle: c_uint64, size: int, device: int, descriptor: int | None) -> None:
        self.size, self.device, self.descriptor = size, device, descriptor
        self._handle: c_uint64 | None = handle
        self.address = 0
        base = c_uint64()
        call("cuMemAddressReserve", byref(base), c_size_t(size), c_size_t(0), c_uint64(0), c_uint64(0))
        try:
            call("cuMemMap", base, c_size_t(size), c_size_t(0), handle, c_uint64(0))
        except CudaDriverError:
            call("cuMemAddressFree", base, c_size_t(size))
            raise
        self.address = base.value
        access = _Access(_Location(DEVICE, device), READ_WRITE)
        call("cuMemSetAccess", base, c_size_t(size), byref(access), c_size_t(1))

    @classmethod
    def create(cls, size: int, device: int) -> LentMemory:
        size = rounded(size)
        properties = _Properties(type=PINNED, requested=POSIX_DESCRIPTOR, location=_Location(DEVICE, device))
        handle, descriptor = c_uint64(), c_int()
        call("cuMemCreate", byref(handle), c_size_t(size), byref(properties), c_uint64(0))
        try:
            call("cuMemExportToShareableHandle", byref(descriptor), handle, c_int(POSIX_DESCRIPTOR), c_uint64(0))
            return cls(handle, size, device, descriptor.value)
        except CudaDriverError:
            call("cuMemRelease", handle)
            raise

    @classmethod
    def open(cls, descriptor: int, size: int, device: int) -> LentMemory:
        handle = c_uint64()
        call("cuMemImportFromShareableHandle", byref(handle), c_void_p(descriptor), c_int(POSIX_DESCRIPTOR))
        os.close(descriptor)
        return cls(handle, rounded(size), device, None)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": (self.size,), "typestr": "|u1", "data": (self.address, False), "version": 3, "strides": None}

    def close(self) -> None:
        """Unmap the memory. No tensor and no kernel in flight may use it."""
        if self._handle is None:
            return
        if self.descriptor is not None:
            os.close(self.descriptor)
        call("cuMemUnmap", c_uint64(self.address), c_size_t(self.size))
        call("cuMemAddressFree", c_uint64(self.address), c_size_t(self.size))
        call("cuMemRelease", self._handle)
        self._handle = None
