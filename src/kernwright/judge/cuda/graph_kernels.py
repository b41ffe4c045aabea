"""Graph kernels: what a captured call launches, by the driver's own account of its graph.

A profiler takes seconds to start in every process. It alone knows which stream a kernel ran on; names and counts are in
the graph, whose nodes are there as soon as the call is captured.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Iterator
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_void_p
from functools import cache
from typing import Any

from kernwright.judge.cuda import driver

KERNEL, COPY, FILL, GRAPH = 0, 1, 2, 4  # of the driver's types of nodes
NAMES = {COPY: "Memcpy", FILL: "Memset"}


class _KernelNode(ctypes.Structure):
    _fields_ = (
        ("function", c_void_p),
        ("grid", c_uint * 3),
        ("block", c_uint * 3),
        ("shared_bytes", c_uint),
        ("arguments", c_void_p),
        ("extra", c_void_p),
        ("kernel", c_void_p),
        ("context", c_void_p),
    )


def kernels_of(graph: int) -> Counter[str]:
    """By name. `graph`: the driver's handle of one that was captured."""
    return Counter(_names(c_void_p(graph)))


def _names(graph: c_void_p) -> Iterator[str]:
    for node in _nodes(graph):
        kind = c_int()
        driver.call("cuGraphNodeGetType", node, byref(kind))
        if kind.value == KERNEL:
            yield demangled(_kernel_name(node))
        elif kind.value == GRAPH:
            inner = c_void_p()
            driver.call("cuGraphChildGraphNodeGetGraph", node, byref(inner))
            yield from _names(inner)
        elif kind.value in NAMES:
            yield NAMES[kind.value]


def _nodes(graph: c_void_p) -> list[c_void_p]:
    count = c_size_t()
    driver.call("cuGraphGetNodes", graph, None, byref(count))
    nodes = (c_void_p * count.value)()
    driver.call("cuGraphGetNodes", graph, nodes, byref(count))
    return [c_void_p(node) for node in nodes]


def _kernel_name(node: c_void_p) -> bytes:
    """Of a function; where a library was loaded as a whole, of a kernel."""
    found, name = _KernelNode(), c_char_p()
    driver.call("cuGraphKernelNodeGetParams_v2", node, byref(found))
    if found.function:
        driver.call("cuFuncGetName", byref(name), c_void_p(found.function))
    else:
        driver.call("cuKernelGetName", byref(name), c_void_p(found.kernel))
    return name.value or b"unknown"


def demangled(name: bytes) -> str:
    """As its source has it; whatever is no C++ name stays."""
    if not name.startswith(b"_Z"):
        return name.decode(errors="replace")
    status = c_int()
    found = _demangle()(name, None, None, byref(status))
    if not found:
        return name.decode(errors="replace")
    try:
        return ctypes.string_at(found).decode(errors="replace")
    finally:
        _free()(found)


@cache
def _demangle() -> Any:
    function = ctypes.CDLL("libstdc++.so.6").__cxa_demangle
    function.argtypes, function.restype = (c_char_p, c_void_p, c_void_p, c_void_p), c_void_p
    return function


@cache
def _free() -> Any:
    function = ctypes.CDLL(None).free
    function.argtypes, function.restype = (c_void_p,), None
    return function
