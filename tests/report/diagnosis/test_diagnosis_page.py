"""The page of a trace, read back by a parser and by a real browser."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from made_trace import MadeTrace
from typer.testing import CliRunner

from kernwright.cli.main import app
from kernwright.diagnose.hotspots.ranking import diagnose
from kernwright.diagnose.hotspots.trace_diagnosis import Diagnosis
from kernwright.diagnose.steps import steps_of
from kernwright.diagnose.trace.trace import read_trace
from kernwright.report.diagnosis.page import render_diagnosis, step_times
from kernwright.report.diagnosis.timeline import timeline_of, typical_steps

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
HOSTILE = "evil<script>alert(1)</script>\"'&{{7*7}}\u202e" + "x" * 300


def made(steps: int = 3) -> MadeTrace:
    """Return steps of a modulated norm, a GEMM on which the host is late, and a kernel with a hostile name."""
    trace = MadeTrace()
    row = [[1, 4096, 3072], [1, 1, 3072]]
    chain = [("layer_norm", row[:1]), ("add", [[1, 1, 3072], []]), ("mul", row), ("add", row)]
    for number in range(steps):
        at = 2000.0 * number
        trace.range("user_annotation", f"decode#{number}", at - 1, at + 1990)
        for op, dims in [*chain, ("mm", [[4096, 3072], [3072, 3072]]), ("evil", [])]:
            start, took = (at + 700, 300.0) if op == "mm" else (at, 40.0)
            name = {"mm": "nvjet_hsh", "evil": HOSTILE}.get(op, f"void at::native::elementwise_kernel<{op}>")
            types = ["c10::BFloat16"] * len(dims)
            operator = HOSTILE if op == "evil" else f"aten::{op}"
            trace.range("cpu_op", operator, at, start + 20, **{"Input Dims": dims, "Input type": types})
            trace.kernel(name, start + 15, took, launched=start + 5, grid=[999, 1, 1])
            at = start + took + 20
    return trace


def diagnosis(folder: Path, steps: int = 3) -> Diagnosis:
    properties = [{"name": f"NVIDIA H200 {HOSTILE}", "numSms": 132}]
    return diagnose(read_trace(made(steps).write(folder / "trace.json", deviceProperties=properties)))


def test_the_page_has_the_hotspots_their_paths_and_no_foreign_markup(tmp_path: Path) -> None:
    path = made().write(tmp_path / "trace.json", deviceProperties=[{"name": "NVIDIA H200"}])
    page = tmp_path / "page.html"
    ending = CliRunner().invoke(app, ["hotspots", str(path), "--html", str(page)])
    assert ending.exit_code == 0, ending.output
    text = page.read_text(encoding="utf-8")
    for expected in ("norm_modulation", "covered, off", "kernwright.norm_scale_shift", "Timeline of decode#1", "<svg"):
        assert expected in text
    assert "<script" not in text and "{{7*7}}" in text and "\u202e" not in text
    assert not re.search(r"(src|href)=|url\(|@import", text), "it fetches nothing"


@pytest.mark.parametrize(("steps", "extent"), [(3, " in 3 steps"), (0, "")])
def test_sums_are_said_to_be_of_all_counted_steps(steps: int, extent: str, tmp_path: Path) -> None:
    trace = made(steps or 1)
    if not steps:
        trace.events = [event for event in trace.events if event["cat"] != "user_annotation"]
    page = tmp_path / "page.html"
    ending = CliRunner().invoke(app, ["hotspots", str(trace.write(tmp_path / "trace.json")), "--html", str(page)])
    assert ending.exit_code == 0, ending.output
    assert f"ms of GPU work{extent}: " in ending.stdout and f"ms of GPU time{extent})" in ending.stdout
    text = page.read_text(encoding="utf-8")
    assert f"GPU work{extent}</span>" in text and f"of the GPU's work{extent}; " in text
    assert text.count(f"Times are sums of the GPU work{extent}.") == (2 if steps else 0)


def test_work_outside_of_the_steps_is_named(tmp_path: Path) -> None:
    trace = made()
    trace.kernel("nvjet_late", 9000.0, 50.0, launched=8990.0, grid=[1, 1, 1])
    assert diagnose(read_trace(trace.write(tmp_path / "trace.json"))).extent == " in 3 steps and outside of them"


def test_the_times_of_a_step_add_up(tmp_path: Path) -> None:
    found = diagnosis(tmp_path)
    (bar,) = step_times(found)
    assert bar.us == pytest.approx(found.steps[0].span_us / 3)
    assert dict(bar.parts)["GEMM"] == 300.0 and dict(bar.parts)["modulation"] == 160.0


@pytest.mark.parametrize("columns", [20, 1000])
def test_the_timeline_has_every_event_and_gap_at_its_time(columns: int, tmp_path: Path) -> None:
    found = diagnosis(tmp_path)
    ((step, count),) = typical_steps(steps_of(found.trace), found.trace.gpu)
    line = timeline_of(step, count, {id(event): "GEMM" for event in step.events}, columns)
    (lane,) = line.lanes
    width = line.duration_us / columns
    for event in step.events:
        covered = sum(
            min(b.end_us, event.end_us) - max(b.start_us, event.start_us)
            for b in lane.boxes
            if b.start_us < event.end_us and event.start_us < b.end_us
        )
        assert abs(covered - event.duration_us) <= 2 * width
    drawn = sum(box.end_us - box.start_us for box in lane.boxes)
    idle = sum(gap.duration_us for gap in line.gaps)
    assert idle == pytest.approx(line.duration_us - sum(event.duration_us for event in step.events))
    assert drawn + idle == pytest.approx(line.duration_us, abs=8 * width)


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium")
def test_the_page_needs_no_horizontal_scrolling_in_a_browser(tmp_path: Path) -> None:
    page = re.sub(r"<meta http-equiv[^>]*>", "", render_diagnosis(diagnosis(tmp_path), "Hotspots"))
    frames = "".join(
        f'<iframe style="width:{width}px;height:800px;border:0" srcdoc="{html.escape(page)}"></iframe>'
        for width in (1400, 400)
    )
    script = (
        "addEventListener('load', () => { document.title = [...document.querySelectorAll('iframe')].map(frame => {"
        "const root = frame.contentDocument.documentElement;"
        "return `${root.scrollWidth <= root.clientWidth}:${root.querySelectorAll('svg').length}` }).join(' ') })"
    )
    (tmp_path / "frames.html").write_text(f"<body>{frames}<script>{script}</script>", encoding="utf-8")
    words = ["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", f"--user-data-dir={tmp_path / 'profile'}"]
    command = [str(CHROMIUM), *words, f"file://{tmp_path / 'frames.html'}"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    assert re.search(r"<title>([^<]*)</title>", shown)[1] == "true:4 true:4"  # type: ignore[index]
