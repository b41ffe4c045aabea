"""kernwright denoise: the dumps and traces that it leaves, and what it refuses."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from kernwright.cli.console import ProgressBar
from kernwright.cli.main import app
from kernwright.core.errors import EnvironmentProblem, KernwrightError
from kernwright.diagnose.perf_dump.dump_files import find_dumps, read_dump


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNWRIGHT_DUMPS", str(tmp_path / "dumps"))


def denoise(*words: object) -> Result:
    return CliRunner().invoke(app, ["denoise", *map(str, words)], catch_exceptions=True)


def test_repeated_runs_are_filed_by_label() -> None:
    done = denoise("wan-t2v", "--tiny", "--label", "base", "--repeat", 2, "--steps", 2, "--warmup", 0)
    assert done.exit_code == 0, done.output
    dumps = [read_dump(path) for path in find_dumps("base")]
    assert len(dumps) == 2 and all(len(dump.denoise_steps_ms) == 2 for dump in dumps)
    held = dumps[0].kernwright
    assert held is not None and held.preset == "wan-t2v" and "checks" in held.machine
    assert held.comparable == dumps[1].kernwright.comparable  # type: ignore[union-attr]


def test_a_profiled_run_has_a_trace_and_is_no_benchmark(tmp_path: Path) -> None:
    dump = tmp_path / "run.json"
    done = denoise("wan-t2v", "--tiny", "--profile", "--steps", 2, "--warmup", 0, "--perf-dump", dump)
    assert done.exit_code == 0, done.output
    assert read_dump(dump).is_profiled
    trace = json.loads(gzip.decompress((tmp_path / "run.trace.json.gz").read_bytes()))
    events = trace["traceEvents"]
    assert len({event["name"] for event in events if event["name"].startswith("ProfilerStep")}) == 2
    assert any(event["name"] == "aten::linear" and event["args"].get("Input Dims") for event in events)
    assert any("transformer_wan.py" in event["name"] for event in events if event.get("cat") == "python_function")
    refused = CliRunner().invoke(app, ["compare", str(dump), str(dump)])
    assert isinstance(refused.exception, KernwrightError)


def test_an_interrupted_run_leaves_no_dump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def steps_of(bar: ProgressBar, what: str, steps: int) -> Any:
        def stop(done: int) -> None:
            if "denoising" in what:
                raise KeyboardInterrupt

        return stop

    monkeypatch.setattr(ProgressBar, "steps_of", steps_of)
    done = denoise("wan-t2v", "--tiny", "--warmup", 0, "--profile")
    assert done.exit_code == 130
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (["quen"], KernwrightError),
        ([], KernwrightError),
        (["qwen", "--tiny", "--compile", "regionl"], KernwrightError),
        (["qwen", "--tiny", "--profile", "--repeat", "2"], KernwrightError),
        (["qwen", "--tiny", "--steps", "0"], KernwrightError),
        (["qwen", "--tiny", "--weights", "nowhere"], KernwrightError),
        (["qwen", "--tiny", "--layers", "2"], KernwrightError),
        (["qwen", "--tiny", "--label", "a/b"], KernwrightError),
        (["qwen", "--tiny", "--perf-dump", "nowhere/run.json"], EnvironmentProblem),
    ],
)
def test_a_wrong_request_is_refused_before_anything_runs(words: list[str], kind: type[Exception]) -> None:
    assert isinstance(denoise(*words).exception, kind)


def test_the_list_names_every_preset() -> None:
    assert {"flux", "wan-t2v"} <= {line.split()[0] for line in denoise("--list").output.splitlines()}
