"""Graph kernels: the kernels that a captured call launches, read from its graph by the driver.

A profiler takes seconds to start in every process, while a graph exists as soon as the call is captured. A graph has no
streams, but launches on one stream wait for each other. Such a chain is numbered like a stream.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Iterator, Sequence
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from functools import cache
from graphlib import TopologicalSorter
from typing import Any

from kernwright.judge.system import cuda_driver as driver

KERNEL, COPY, FILL, GRAPH = 0, 1, 2, 4  # node types of the driver
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


def kernels_of(graph: int) -> Counter[tuple[str, int]]:
    """Count the kernels of a captured graph by name and chain. `graph` is the driver's handle."""
    return Counter(_named(c_void_p(graph)))


def _named(graph: c_void_p) -> Iterator[tuple[str, int]]:
    chains = chains_of(_nodes(graph), _edges(graph))
    for node in chains:
        handle, kind = c_void_p(node), c_int()
        driver.call("cuGraphNodeGetType", handle, byref(kind))
        if kind.value == KERNEL:
            yield demangled(_kernel_name(handle)), chains[node]
        elif kind.value == GRAPH:
            inner = c_void_p()
            driver.call("cuGraphChildGraphNodeGetGraph", handle, byref(inner))
            yield from ((name, chains[node]) for name, _ in _named(inner))
        elif kind.value in NAMES:
            yield NAMES[kind.value], chains[node]


def chains_of(nodes: Sequence[int], edges: Sequence[tuple[int, int]]) -> dict[int, int]:
    """Assign each node to a chain. Return the nodes in an order in which each node follows those that it waits for.

    A node continues the chain of a node that it waits for, unless another node has done so. Otherwise it begins a
    chain.
    """
    before: dict[int, list[int]] = {node: [] for node in nodes}
    for first, then in edges:
        before[then].append(first)
    chains: dict[int, int] = {}
    continued: set[int] = set()
    for node in TopologicalSorter(before).static_order():
        own = next((first for first in before[node] if first not in continued), None)
        if own is None:
            chains[node] = 1 + max(chains.values(), default=-1)
        else:
            continued.add(own)
            chains[node] = chains[own]
    return chains


def _nodes(graph: c_void_p) -> list[int]:
    count = c_size_t()
    driver.call("cuGraphGetNodes", graph, None, byref(count))
    nodes = (c_void_p * count.value)()
    driver.call("cuGraphGetNodes", graph, nodes, byref(count))
    return [int(node) for node in nodes if node]


def _edges(graph: c_void_p) -> list[tuple[int, int]]:
    """Return the edges. The driver refuses the query without a buffer for edge data, which is not used, and with empty
    buffers."""
    count = c_size_t()
    driver.call("cuGraphGetEdges_v2", graph, None, None, None, byref(count))
    if not count.value:
        return []  # a single kernel
    first, then = (c_void_p * count.value)(), (c_void_p * count.value)()
    driver.call("cuGraphGetEdges_v2", graph, first, then, (c_uint64 * count.value)(), byref(count))
    return [(int(a or 0), int(b or 0)) for a, b in zip(first, then, strict=True)]


def _kernel_name(node: c_void_p) -> bytes:
    """Return the name of a function, or of a kernel if a library was loaded as a whole."""
    found, name = _KernelNode(), c_char_p()
    driver.call("cuGraphKernelNodeGetParams_v2", node, byref(found))
    if found.function:
        driver.call("cuFuncGetName", byref(name), c_void_p(found.function))
    else:
        driver.call("cuKernelGetName", byref(name), c_void_p(found.kernel))
    return name.value or b"unknown"


def demangled(name: bytes) -> str:
    """Return a C++ name as in its source. Other names are returned unchanged."""
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
