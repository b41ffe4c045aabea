"""Exports of nsys, recent and old, whole and damaged, read as traces."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_export import MadeExport

from kernwright.diagnose.nsys.export import read_export
from kernwright.diagnose.profile.profile import profile_of
from kernwright.diagnose.recording import read_recording
from kernwright.diagnose.trace.chrome import TraceError

LAYER_NORM = "void at::native::vectorized_layer_norm_kernel<c10::BFloat16, float, true>(int, float)"


def made(path: Path, old: bool = False, without: tuple[str, ...] = ()) -> Path:
    """Write an export of three steps, each with a norm, a GEMM, a copy and a fill. The host is late for the GEMM."""
    export = MadeExport(path, old, without)
    export.insert("TARGET_INFO_GPU", id=0, name="NVIDIA H200", smCount=132)
    export.insert("NVTX_EVENTS", eventType=75, text="NCCL", domainId=3, globalTid=1, end=None)
    for start in (1000.0 * number for number in range(3)):
        export.range(f"denoise step {int(start) // 1000}", start, start + 800, by_id=not old)
        export.range("ncclAllReduce", start - 100, start + 900, domain=3)
        export.range("aten::layer_norm, seq = 7, sizes = [[1, 8, 3072], []]", start + 10, start + 60)
        export.kernel(LAYER_NORM, start + 30, 50.0, start + 20)
        export.range("aten::mm, seq = 8", start + 100, start + 400)
        export.kernel("nvjet_hsh_128x64_TNT", start + 400, 100.0, start + 390)
        copy = {"bytes": 4096, "copyKind": 2, "srcKind": 2, "dstKind": 0}
        export.event("CUPTI_ACTIVITY_KIND_MEMCPY", start + 510, 20.0, start + 405, **copy)
        export.event("CUPTI_ACTIVITY_KIND_MEMSET", start + 540, 5.0, start + 410, bytes=64)
    return export.close()


@pytest.mark.parametrize("old", [False, True])
def test_an_export_has_the_tables_of_a_trace(old: bool, tmp_path: Path) -> None:
    trace = read_recording(made(tmp_path / "report.sqlite", old))
    found = profile_of(trace)
    assert [(row.kernel, row.category, row.us, row.launches) for row in found.kernels] == [
        ("nvjet_hsh_128x64_TNT", "GEMM", 300.0, 3),
        (LAYER_NORM, "norm", 150.0, 3),
        ("Memcpy DtoH" if old else "Memcpy DtoH (Device -> Pageable)", "memory", 60.0, 3),
        ("Memset (Device)", "memory", 15.0, 3),
    ]
    assert {row.kernel: row.op for row in found.kernels}["nvjet_hsh_128x64_TNT"] == "aten::mm"
    assert [(row.group, row.count) for row in found.steps] == [("denoise step", 3)]
    waited = {each.op: each.waited_us for each in found.waits}
    assert waited["aten::mm"] == pytest.approx(3 * 290.0)
    assert trace.device_name == "NVIDIA H200"
    norm = next(event for event in trace.gpu if event.name == LAYER_NORM)
    assert norm.grid == (64, 2, 1) and norm.launch is not None and norm.launch.name == "cudaLaunchKernel"
    assert norm.launch.stack.op is not None and norm.launch.stack.op.inputs[0] == [[1, 8, 3072], []]


def test_tables_may_be_missing(tmp_path: Path) -> None:
    without = ("NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_MEMCPY", "TARGET_INFO_GPU")
    found = profile_of(read_export(made(tmp_path / "report.sqlite", without=without)))
    assert [row.launches for row in found.kernels] == [3, 3, 3]
    assert found.devices[0].waited_us == 0.0
    assert any("no launch" in note for note in found.notes)


def test_launches_of_two_processes_with_the_same_numbers_are_told_apart(tmp_path: Path) -> None:
    export = MadeExport(tmp_path / "report.sqlite")
    name = export.string("cudaLaunchKernel")
    for process, launched in ((1, 10.0), (2, 500.0)):
        kernel = {"globalPid": process << 24, "correlationId": 5, "deviceId": process}
        export.kernel(f"kernel of {process}", launched + 30, 10.0, **kernel)
        call = {"globalTid": process << 24 | 9, "correlationId": 5, "nameId": name}
        start = {"start": int(launched * 1000), "end": int(launched * 1000) + 10}
        export.insert("CUPTI_ACTIVITY_KIND_RUNTIME", **start, **call)
    first, second = read_export(export.close()).gpu
    assert first.launch is not None and first.launch.start_us == 10.0
    assert second.launch is not None and second.launch.start_us == 500.0


def test_a_graph_that_was_recorded_as_a_whole_is_noted(tmp_path: Path) -> None:
    export = MadeExport(tmp_path / "report.sqlite")
    export.event("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", 10.0, 90.0, 5.0, graphId=4)
    found = profile_of(read_export(export.close()))
    assert found.kernels[0].kernel == "CUDA graph 4"
    assert any("--cuda-graph-trace=node" in note for note in found.notes)


def no_export(path: Path, problem: str) -> None:
    if problem == "not an export":
        MadeExport(path, without=("StringIds",)).close()
    elif problem == "no events of a GPU":
        MadeExport(path).close()
    elif problem == "damaged":
        whole = made(path).read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
    elif problem != "cannot read":
        path.write_bytes(b"" if problem == "is empty" else b"{}")


@pytest.mark.parametrize(
    "problem", ["not an export", "no events of a GPU", "damaged", "cannot read", "is empty", "not an SQLite file"]
)
def test_a_file_that_is_no_export_is_one_error(problem: str, tmp_path: Path) -> None:
    path = tmp_path / "report.sqlite"
    no_export(path, problem)
    with pytest.raises(TraceError, match=problem) as caught:
        read_recording(path)
    assert str(path) in caught.value.cause and caught.value.remedy
