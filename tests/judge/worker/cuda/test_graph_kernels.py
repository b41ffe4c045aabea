"""The content of a CUDA graph, with a made-up driver and the real demangler."""

from __future__ import annotations

from typing import Any

import pytest

from kernwright.judge.system import cuda_driver as driver
from kernwright.judge.worker.cuda import graph_kernels
from kernwright.judge.worker.cuda.graph_kernels import chains_of, demangled, kernels_of

OUTER, INNER = 7, 8
NODES = {OUTER: [101, 102, 103, 104, 105], INNER: [106]}
# Two kernels, a copy, a graph and an event. The inner graph has a fill.
KINDS = {101: 0, 102: 0, 103: 1, 104: 4, 105: 7, 106: 2}
# The copy runs parallel to the second kernel.
EDGES = {OUTER: [(101, 102), (101, 103), (102, 104), (103, 104), (104, 105)]}
FUNCTIONS = {101: 1001, 102: None}
NAMES = {1001: b"_Z3addIfEvPT_i", 2002: b"_fused"}


class Driver:
    """The few functions of the driver that are used."""

    def cuGraphGetNodes(self, graph: Any, nodes: Any, count: Any) -> int:
        own = NODES[graph.value]
        count._obj.value = len(own)
        if nodes is not None:
            nodes[:] = own
        return 0

    def cuGraphGetEdges_v2(self, graph: Any, first: Any, then: Any, data: Any, count: Any) -> int:
        own = EDGES.get(graph.value, [])
        if first is not None and not own:
            return 1  # CUDA_ERROR_INVALID_VALUE, as the real driver answers
        count._obj.value = len(own)
        for number, (a, b) in enumerate(own if first is not None else []):
            first[number], then[number] = a, b
        return 0

    def cuGraphNodeGetType(self, node: Any, kind: Any) -> int:
        kind._obj.value = KINDS[node.value]
        return 0

    def cuGraphChildGraphNodeGetGraph(self, node: Any, graph: Any) -> int:
        graph._obj.value = INNER
        return 0

    def cuGraphKernelNodeGetParams_v2(self, node: Any, found: Any) -> int:
        found._obj.function, found._obj.kernel = FUNCTIONS[node.value], 2002
        return 0

    def cuFuncGetName(self, name: Any, function: Any) -> int:
        name._obj.value = NAMES[function.value]
        return 0

    cuKernelGetName = cuFuncGetName


def test_kernels_copies_and_what_an_inner_graph_holds_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "_library", Driver)
    found = {("void add<float>(float*, int)", 0): 1, ("_fused", 0): 1, ("Memcpy", 1): 1, ("Memset", 0): 1}
    assert kernels_of(OUTER) == found


def test_nodes_that_wait_for_each_other_are_one_chain() -> None:
    assert set(chains_of([3, 1, 2], [(1, 2), (2, 3)]).values()) == {0}
    forked = chains_of([1, 2, 3, 4], [(1, 2), (1, 3), (2, 4), (3, 4)])
    assert forked[1] == forked[2] != forked[3] and forked[4] in (forked[2], forked[3])
    assert chains_of([1, 2], []) == {1: 0, 2: 1}


def test_a_struct_is_as_long_as_the_drivers() -> None:
    assert graph_kernels._KernelNode.arguments.offset == 40 and graph_kernels._KernelNode.context.offset == 64


@pytest.mark.parametrize(
    ("name", "shown"), [(b"_Z3fooi", "foo(int)"), (b"triton_poi_fused_0", "triton_poi_fused_0"), (b"_Zno", "_Zno")]
)
def test_names_are_demangled(name: bytes, shown: str) -> None:
    assert demangled(name) == shown
