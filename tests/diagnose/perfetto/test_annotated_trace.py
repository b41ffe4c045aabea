"""The annotated trace: the recording is unchanged in it, and its own tracks hold what the diagnosis says."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest
from made_export import MadeExport
from made_trace import MadeTrace
from typer.testing import CliRunner

from kernwright.cli.main import app
from kernwright.core.errors import EnvironmentProblem, KernwrightError
from kernwright.diagnose.hotspots.ranking import diagnose
from kernwright.diagnose.perfetto.annotated_trace import write_annotated
from kernwright.diagnose.recording import read_recording


def made() -> MadeTrace:
    """Return steps of a modulated norm on one stream, and of kernels that overlap on another."""
    trace = MadeTrace()
    draw = random.Random(3)
    chain = [("layer_norm", [[1, 8]]), ("add", [[1, 8], []]), ("mul", [[1, 8], [1, 1]]), ("add", [[1, 8], [1, 1]])]
    for number in range(3):
        at = 1000.0 * number
        trace.range("user_annotation", f"step_{number} \ud800", at, at + 900)
        for place, (op, dims) in enumerate(chain):
            trace.range("cpu_op", f"aten::{op}", at + 50 * place, at + 50 * place + 40, **{"Input Dims": dims})
            kernel = f"void at::native::elementwise_kernel<{op}>"
            trace.kernel(kernel, at + 50 * place + 30, 20.0, launched=at + 50 * place + 5)
        for _ in range(10):
            trace.kernel(
                "nvjet_overlaps", at + draw.uniform(400, 800), draw.uniform(1, 90), stream=9, device=number % 2
            )
    trace.events.append({"ph": "i", "name": "a mark", "pid": "Spans", "tid": "PyTorch", "ts": 5.25, "s": "g"})
    return trace


def annotated(path: Path, out: Path) -> dict[str, Any]:
    ending = CliRunner().invoke(app, ["hotspots", str(path), "--perfetto", str(out)])
    assert ending.exit_code == 0, ending.output
    data = out.read_bytes()
    found: dict[str, Any] = json.loads(gzip.decompress(data) if out.suffix == ".gz" else data)
    return found


def tracks(events: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    return {name: [e for e in events if e["ph"] == "X" and e["tid"] == tid] for tid, name in names.items()}


@pytest.mark.parametrize("form", ["object", "array"])
def test_the_recording_is_unchanged_and_followed_by_tracks(form: str, tmp_path: Path) -> None:
    original, path = made(), tmp_path / "trace.json"
    if form == "array":
        path.write_text(json.dumps(original.events))
    else:
        original.write(path, deviceProperties=[{"name": "NVIDIA H200"}], displayTimeUnit="ms")
    whole = annotated(path, tmp_path / ("out.json.gz" if form == "object" else "out.json"))
    count = len(original.events)
    assert whole["traceEvents"][:count] == original.events
    if form == "object":
        assert whole["displayTimeUnit"] == "ms" and whole["deviceProperties"][0]["name"] == "NVIDIA H200"
    own = whole["traceEvents"][count:]
    assert {event["pid"] for event in own}.isdisjoint(event["pid"] for event in original.events)
    found = tracks(own)
    assert [event["name"] for event in found["steps"]] == [f"step_{number} \ud800" for number in range(3)]
    assert [event["name"] for event in found["GPU 0: chains"]] == ["norm_modulation: covered, off"] * 3
    chain = found["GPU 0: chains"][0]
    assert (chain["ts"], chain["dur"], chain["args"]["kernels"]) == (30.0, 170.0, 4)
    assert chain["args"]["operators"] == "aten::layer_norm aten::add aten::mul aten::add"
    assert len(found["GPU 0, stream 7: categories"]) == len(found["GPU 0, stream 7: hotspots"]) == 12
    assert sum(gap["dur"] for gap in found["GPU 0: gaps"]) > 0


def test_events_of_one_track_do_not_overlap(tmp_path: Path) -> None:
    path = made().write(tmp_path / "trace.json")
    own = annotated(path, tmp_path / "out.json")["traceEvents"][len(made().events) :]
    found = tracks(own)
    assert any(name.endswith("(2)") for name in found), "overlapping kernels get a track of their own"
    for events in found.values():
        ends = 0.0
        for event in events:
            assert event["ts"] >= ends and event["dur"] >= 0
            ends = event["ts"] + event["dur"]
    lasts = sum(event["dur"] for name, events in found.items() if ": hotspots" in name for event in events)
    assert lasts == pytest.approx(sum(event.duration_us for event in read_recording(path).gpu), abs=0.1)


def test_an_export_of_nsys_becomes_a_trace(tmp_path: Path) -> None:
    export = MadeExport(tmp_path / "report.sqlite")
    export.kernel("nvjet_hsh_128x64_TNT", 10.0, 90.0, 5.0)
    whole = annotated(export.close(), tmp_path / "out.json")
    (kernel,) = (event for event in whole["traceEvents"] if event.get("cat") == "kernel")
    assert (kernel["name"], kernel["ts"], kernel["dur"]) == ("nvjet_hsh_128x64_TNT", 10.0, 90.0)
    assert any(event["name"] == "#1 nvjet_hsh_128x64_TNT" for event in whole["traceEvents"])


def test_the_trace_is_not_overwritten_and_a_folder_must_exist(tmp_path: Path) -> None:
    path = made().write(tmp_path / "trace.json")
    found = diagnose(read_recording(path))
    with pytest.raises(KernwrightError, match="is the trace itself"):
        write_annotated(found, tmp_path / "." / "trace.json")
    with pytest.raises(EnvironmentProblem, match="cannot be written"):
        write_annotated(found, tmp_path / "trace.json" / "out.json")
