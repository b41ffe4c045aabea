"""kernwright profile as a user calls it: what it prints, and one clear error for each input that it cannot read."""

from __future__ import annotations

import gzip
import json
import subprocess
from pathlib import Path

import pytest
from made_trace import MadeTrace
from typer.testing import CliRunner

from kernwright.cli.main import app
from kernwright.core.errors import KernwrightError


def made() -> MadeTrace:
    trace = MadeTrace()
    for number in range(3):
        trace.range("user_annotation", f"ProfilerStep#{number}", 100.0 * number, 100.0 * number + 90)
        trace.range("cpu_op", "aten::mm", 100.0 * number + 1, 100.0 * number + 50)
        trace.kernel("nvjet_<script>|[red]", 100.0 * number + 20, 30.0, launched=100.0 * number + 5)
    return trace


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_the_tables_of_a_trace_are_printed(name: str, tmp_path: Path) -> None:
    path = made().write(tmp_path / name)
    text = CliRunner().invoke(app, ["profile", str(path)]).output
    assert "nvjet_" in text and "GEMM" in text and "ProfilerStep" in text and "0.090" in text
    assert json.loads(CliRunner().invoke(app, ["profile", str(path), "--json"]).output)["gpu_us"] == 90.0
    markdown = CliRunner().invoke(app, ["profile", str(path), "--markdown"]).output
    assert "### kernels" in markdown and "<script>" not in markdown.replace("\\<", "")


def damaged() -> dict[str, bytes]:
    whole = json.dumps({"traceEvents": made().events}).encode()
    host = json.dumps({"traceEvents": [e for e in made().events if e["cat"] == "cpu_op"]}).encode()
    return {
        "empty": b"",
        "truncated": gzip.compress(whole)[:-60],
        "truncated ": whole[: len(whole) // 2],
        "no events of a GPU": host,
        "not JSON": b"\x89PNG\r\n\x1a\n",
        "traceEvents": b'{"tables": []}',
    }


@pytest.mark.parametrize("said", damaged())
def test_an_input_that_is_no_whole_trace_is_one_error(said: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(damaged()[said])
    ending = CliRunner().invoke(app, ["profile", str(path)])
    assert isinstance(ending.exception, KernwrightError), ending.output
    assert said.strip() in ending.exception.cause and str(path) in ending.exception.cause
    assert ending.exception.remedy


def test_a_preset_is_run_under_the_profiler_with_its_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[list[str]] = []

    def run(command: list[str], **options: object) -> subprocess.CompletedProcess[bytes]:
        ran.append(command)
        made().write(tmp_path / "own.trace.json.gz")
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", run)
    words = ["profile", "flux", "--out", str(tmp_path / "own"), "--json", "--", "--layers", "2"]
    assert json.loads(CliRunner().invoke(app, words).stdout)["gpu_us"] == 90.0
    dump = str(tmp_path / "own.json")
    assert ran[0][1:] == ["-m", "kernwright", "denoise", "flux", "--layers", "2", "--profile", "--perf-dump", dump]


def test_a_name_that_is_neither_a_file_nor_a_preset_is_answered_with_the_closest_preset() -> None:
    ending = CliRunner().invoke(app, ["profile", "fluxx"])
    assert isinstance(ending.exception, KernwrightError)
    assert "fluxx" in ending.exception.cause and "flux" in ending.exception.remedy


def odd() -> dict[str, MadeTrace]:
    """Return traces with values that a profiler may write and that a sum or a name does not expect."""
    timeless, nameless = MadeTrace(), MadeTrace()
    for at in (0.0, 50.0, 100.0):
        timeless.range("cpu_op", "aten::layer_norm", at, at + 9)
        timeless.kernel("void at::native::layer_norm", at + 5, 0.0, launched=at)
        nameless.range("cpu_op", "", at, at + 40, **{"Input Dims": "text", "Input type": None})
        nameless.kernel("", at + 45, 2.0, launched=at + 30, grid="text", device="0", stream=None)
        nameless.range("user_annotation", "7", at, at)
    return {"no event takes time": timeless, "no operator or kernel has a name": nameless}


@pytest.mark.parametrize("which", odd())
def test_odd_values_are_no_unexpected_error(which: str, tmp_path: Path) -> None:
    path = odd()[which].write(tmp_path / "trace.json", deviceProperties="text")
    for words in (
        ["profile"],
        ["hotspots", "--html", str(tmp_path / "page.html"), "--perfetto", str(tmp_path / "t.json")],
    ):
        ending = CliRunner().invoke(app, [*words, str(path)])
        assert ending.exit_code == 0, ending.exception
