"""Profiles of made traces: every microsecond belongs to a kernel or a gap, and every kernel to the code behind it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_trace import MadeTrace

from kernwright.diagnose.profile.as_json import as_json
from kernwright.diagnose.profile.gpu_time import gpu_time
from kernwright.diagnose.profile.overlap import overlaps_of
from kernwright.diagnose.profile.profile import NoSuchStep, Profile, profile_of
from kernwright.diagnose.profile.streams import Streams
from kernwright.diagnose.profile.tables import tables_of
from kernwright.diagnose.trace.trace import GpuEvent, read_trace

GELU = "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl>"


def event(start: float, length: float, stream: int = 7) -> GpuEvent:
    return GpuEvent(kind="kernel", name="k", start_us=start, duration_us=length, device=0, stream=stream)


def profiled(trace: MadeTrace, folder: Path, mapping: MadeTrace | None = None, group: str | None = None) -> Profile:
    read = read_trace(trace.write(folder / "trace.json", deviceProperties=[{"name": "NVIDIA H200", "numSms": 132}]))
    return profile_of(read, read_trace(mapping.write(folder / "mapping.json")) if mapping else None, group)


spans = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 12), st.integers(1, 3)), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None)
@given(spans, st.randoms())
def test_busy_time_and_gaps_are_the_ticks_of_the_chosen_events(
    found: list[tuple[int, int, int]], random: object
) -> None:
    events = [event(float(start), float(length), stream) for start, length, stream in sorted(found)]
    time = gpu_time(0, events, {id(each) for each in events})
    busy = {tick for start, length, _ in found for tick in range(start, start + length)}
    assert time.busy_us == len(busy)
    assert time.span_us == max(busy) + 1 - min(busy)
    half = [each for each in events if random.random() < 0.5]  # type: ignore[attr-defined]
    chosen = gpu_time(0, events, {id(each) for each in half})
    assert chosen.busy_us == len({tick for each in half for tick in range(int(each.start_us), int(each.end_us))})
    assert chosen.gap_us <= time.gap_us


@settings(max_examples=60, deadline=None)
@given(spans)
def test_hidden_time_is_the_ticks_in_which_another_stream_works(found: list[tuple[int, int, int]]) -> None:
    ends: dict[int, int] = {}
    events = []
    for start, length, stream in sorted(found):  # events of one stream follow each other
        begin = max(start, ends.get(stream, 0))
        ends[stream] = begin + length
        events.append(event(float(begin), float(length), stream))
    events.sort(key=lambda each: each.start_us)
    streams = Streams(events)
    for each in events:
        others = {t for o in events if o.stream != each.stream for t in range(int(o.start_us), int(o.end_us))}
        assert streams.hidden_us(each) == len(others & set(range(int(each.start_us), int(each.end_us))))


def eager(count: int = 2) -> MadeTrace:
    """Return steps of two GELUs and a GEMM, each launched by its own line of Python. The host is late for the GEMM."""
    trace = MadeTrace()
    for start in (1000.0 * number for number in range(count)):
        trace.range("user_annotation", f"decode#{int(start) // 1000}", start, start + 900)
        for place, (op, kernel) in enumerate([("gelu", GELU), ("gelu", GELU), ("mm", "nvjet_hsh_128x64")]):
            at = start + 10 + 200 * place
            trace.range("python_function", f"model.py({place + 1}): forward", at, at + 190)
            trace.range("cpu_op", f"aten::{op}", at + 1, at + 180)
            trace.kernel(kernel, at + 170, 20.0 + 10 * place, launched=at + 160, grid=[64, 1, 1])
    return trace


def test_the_kernels_of_a_step_are_ranked_with_the_code_behind_them(tmp_path: Path) -> None:
    found = profiled(eager(), tmp_path)
    assert [(row.kernel, row.category, row.us, row.launches, row.op) for row in found.kernels] == [
        (GELU, "activation", 100.0, 4, "aten::gelu"),
        ("nvjet_hsh_128x64", "GEMM", 80.0, 2, "aten::mm"),
    ]
    assert found.kernels[0].location == "model.py(2): forward"
    assert found.kernels[0].location_share == pytest.approx(0.6)
    assert [(row.group, row.count) for row in found.steps] == [("decode", 2)]
    assert sum(row.share for row in found.kernels) == pytest.approx(1.0)
    assert found.waits[0].op in ("aten::mm", "aten::gelu")
    assert found.devices[0].host_bound_share > 0.5


def test_one_kind_of_step_can_be_chosen(tmp_path: Path) -> None:
    trace = eager()
    trace.range("user_annotation", "prefill", -500.0, -10.0)
    trace.kernel("nvjet_big", -400.0, 300.0, launched=-450.0)
    assert profiled(trace, tmp_path).us == 480.0
    assert profiled(trace, tmp_path, group="decode").us == 180.0
    assert profiled(trace, tmp_path, group="decode#1").us == 90.0
    with pytest.raises(NoSuchStep, match="prefill, decode"):
        profiled(trace, tmp_path, group="encode")


def test_kernels_of_a_graph_get_their_code_from_the_mapping_trace(tmp_path: Path) -> None:
    graph = MadeTrace()
    for start in (0.0, 300.0, 600.0):
        for place, kernel in enumerate([GELU, GELU, "nvjet_hsh_128x64"]):
            at = start + 50 * place + 20
            graph.kernel(kernel, at, 20.0, launched=start, call="cudaGraphLaunch", grid=[64, 1, 1])
    alone = profiled(graph, tmp_path)
    assert all(row.location is None for row in alone.kernels)
    assert any("--mapping" in note for note in alone.notes)
    mapped = profiled(graph, tmp_path, eager(1))
    gelu, gemm = mapped.kernels
    assert (gelu.location, gelu.op, gelu.is_mapped) == ("model.py(1): forward", "aten::gelu", True)
    assert gelu.location_share == pytest.approx(0.5), "the two GELUs are told apart by their order"
    assert (gemm.location, gemm.us) == ("model.py(3): forward", 60.0)


def test_work_that_runs_alone_has_headroom_and_hidden_work_has_none(tmp_path: Path) -> None:
    trace = MadeTrace()
    for number in range(4):
        start = 1000.0 * number
        trace.kernel("nvjet_hsh_128x64", start + 20, 400.0, launched=start, grid=[999, 1, 1])
        trace.kernel("ncclDevKernel_AllGather_hidden", start + 30, 380.0, launched=start + 5, stream=9)
        trace.kernel("ncclDevKernel_AllReduce_exposed", start + 430, 200.0, launched=start + 10, stream=9)
        trace.kernel("nvjet_hsh_256x64", start + 632, 300.0, launched=start + 15, grid=[999, 1, 1])
        trace.kernel("Memcpy DtoH (Device -> Pageable)", start + 940, 50.0, launched=start + 20, kind="gpu_memcpy")
    rows = {row.kernel: row for row in overlaps_of(profiled(trace, tmp_path).found, 132)}
    exposed, hidden = rows["ncclDevKernel_AllReduce_exposed"], rows["ncclDevKernel_AllGather_hidden"]
    assert (exposed.verdict, exposed.dependency, exposed.advice, exposed.priority) == (
        "headroom", "high", "check deps", "high",
    )  # fmt: skip
    assert (hidden.verdict, hidden.advice, hidden.exposed_us) == ("low-roi-hidden", "skip overlap", 0.0)
    assert "pageable" in rows["Memcpy DtoH (Device -> Pageable)"].signal
    assert not any(name.startswith("nvjet") for name in rows), "a grid that fills the GPU is no candidate"


def test_all_figures_are_one_json_object_and_tables_leave_small_kernels_out(tmp_path: Path) -> None:
    found = profiled(eager(), tmp_path)
    held = json.loads(json.dumps(as_json(found)))
    assert held["gpu_us"] == 180.0
    assert len(held["kernels"]) == 2
    kernels = next(table for table in tables_of(found, 0.5) if table.title == "kernels")
    assert [row[0] for row in kernels.rows][1:] == ["1 more, each below 50.0 %"]
    assert all(len(row) == len(table.head) for table in tables_of(found) for row in table.rows)


def test_several_gpus_are_told_apart(tmp_path: Path) -> None:
    trace = MadeTrace()
    for device in (0, 1):
        for number in range(3):
            trace.kernel("nvjet", 100.0 * number + device, 40.0, launched=100.0 * number - 5, device=device)
    found = profiled(trace, tmp_path)
    assert [(each.device, each.kernel_us, each.gap_us) for each in found.devices] == [
        (0, 120.0, 120.0),
        (1, 120.0, 120.0),
    ]


def modulated_norms(shapes: bool) -> MadeTrace:
    """Return layer norm, scale and shift as four operators, four times, and a GEMM between."""
    trace, at = MadeTrace(), 0.0
    row = [[1, 4096, 3072], [1, 1, 3072]]
    chain = [("layer_norm", row[:1]), ("add", [[1, 1, 3072], []]), ("mul", row), ("add", row)]
    for op, dims in ([*chain, ("mm", [[4096, 3072], [3072, 3072]])]) * 4:
        known = {"Input Dims": dims, "Input type": ["c10::BFloat16"] * len(dims)} if shapes else {}
        trace.range("cpu_op", f"aten::{op}", at, at + 9, **known)
        name = "nvjet_hsh" if op == "mm" else f"void at::native::elementwise_kernel<{op}>"
        trace.kernel(name, at + 8, 80.0, launched=at + 1, grid=[999, 1, 1])
        at += 100
    return trace


@pytest.mark.parametrize(("shapes", "confidence"), [(True, "high"), (False, "medium")])
def test_a_chain_that_a_known_kernel_replaces_is_a_fusion(shapes: bool, confidence: str, tmp_path: Path) -> None:
    (fusion,) = profiled(modulated_norms(shapes), tmp_path).fusions
    assert (fusion.pattern, fusion.confidence) == ("norm_modulation", confidence)
    assert fusion.us == 4 * 4 * 80.0 and fusion.share == pytest.approx(0.8)
    assert fusion.saves_us is not None and 0 < fusion.saves_us < fusion.us
    assert fusion.path == "kernwright.norm_scale_shift" and fusion.turn_on and fusion.source


def test_the_table_of_fusions_says_how_many_kernels_it_leaves_out(tmp_path: Path) -> None:
    found = profiled(modulated_norms(True), tmp_path)
    (fusion,) = found.fusions
    assert len(fusion.kernels) == 3, "layer_norm, add and mul"
    more = replace(fusion, kernels=(*fusion.kernels, "fourth", "fifth"))
    few, many = (
        next(table for table in tables_of(replace(found, fusions=[each])) if table.title == "fusion opportunities")
        for each in (fusion, more)
    )
    shown, cut = (table.rows[0][table.head.index("kernels")] for table in (few, many))
    assert "more" not in shown and shown.count(",") == 2
    assert cut == f"{shown}, and 2 more"
    assert as_json(replace(found, fusions=[more]))["fusions"][0]["kernels"][-1] == "fifth"
