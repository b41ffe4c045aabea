"""Perf dumps on disk: what sglang wrote is read, ours survives a round trip, and bad files give one clear error."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from kernwright.core.errors import BadFile, EnvironmentProblem, KernwrightError
from kernwright.diagnose.perf_dump.dump import PerfDump, StageTime
from kernwright.diagnose.perf_dump.dump_files import dump_path, file_dump, find_dumps, parse_dump, read_dump, write_dump
from kernwright.diagnose.perf_dump.provenance import RunProvenance

SGLANG = {
    "timestamp": "2026-08-23T10:00:00",
    "request_id": "r",
    "commit_hash": "cce0a1244b",
    "tag": "cli_generate",
    "total_duration_ms": 16623.5,
    "steps": [
        {"name": "InputValidationStage", "duration_ms": 0.5},
        {"name": "QwenBeforeDenoisingStage", "duration_ms": 40.0},
        {"name": "DenoisingStage", "duration_ms": 15000.0},
        {"name": "LTXRefinementStage", "duration_ms": 730.0},
    ],
    "denoise_steps_ms": [{"step": 0, "duration_ms": 904.1}, {"step": 1, "duration_ms": 300.0}],
    "memory_checkpoints": {
        "before": {"peak_reserved_mb": 10.0, "peak_host_anon_mb": 3.0},
        "after_forward": {"allocated_mb": 1, "peak_reserved_mb": 99.5},
    },
    "meta": {"model": "black-forest-labs/FLUX.1-dev"},
}


def test_metrics_of_a_dump_that_sglang_wrote() -> None:
    dump = parse_dump(SGLANG, "x.json")
    assert dump.end_to_end_ms == 16623.5
    assert dump.denoise_ms == 15730.0
    assert dump.peak_memory_mb == 99.5
    assert dump.largest("peak_host_anon_mb") == 3.0
    assert dump.kernwright is None


@pytest.mark.parametrize(
    "steps",
    [
        {"DenoisingStage": 5.0, "DecodingStage": 2.0},
        {"DenoisingStage": {"duration_ms": 5.0}, "DecodingStage": {"duration_ms": 2.0}},
        [{"name": "DenoisingStage", "duration_ms": 5.0}, {"name": "DecodingStage", "duration_ms": 2}],
    ],
)
@pytest.mark.parametrize(
    "loop",
    [
        [1.5, 2.5],
        [{"step": 0, "duration_ms": 1.5}, {"step": 1, "duration_ms": 2.5}],
        [{"duration_ms": 1.5}, {"duration_ms": 2.5}],
        {"0": 1.5, "1": 2.5},
    ],
)
def test_shapes_of_steps(steps: Any, loop: Any) -> None:
    dump = parse_dump({"steps": steps, "denoise_steps_ms": loop}, "x.json")
    assert dump.stage_totals == {"DenoisingStage": 5.0, "DecodingStage": 2.0}
    assert [(step.step, step.duration_ms) for step in dump.denoise_steps_ms] == [(0, 1.5), (1, 2.5)]


def test_keys_may_be_missing_or_null() -> None:
    dump = parse_dump({"denoise_steps_ms": [2, 3], "steps": None, "meta": None, "memory_checkpoints": None}, "x.json")
    assert (dump.end_to_end_ms, dump.denoise_ms, dump.peak_memory_mb) == (None, 5.0, None)


def test_older_dumps_list_the_loop_among_the_stages() -> None:
    dump = parse_dump({"steps": [{"name": f"denoising_step_{n}", "duration_ms": n + 1} for n in range(3)]}, "x.json")
    assert dump.steps == []
    assert [step.duration_ms for step in dump.denoise_steps_ms] == [1.0, 2.0, 3.0]


def test_a_repeated_stage_survives_the_file(tmp_path: Path) -> None:
    twice = [StageTime(name="DecodingStage", duration_ms=4.0), StageTime(name="DecodingStage", duration_ms=6.0)]
    dump = PerfDump(
        total_duration_ms=12.0, steps=twice, kernwright=RunProvenance(label="a", preset="flux"), meta={"p": "ü"}
    )
    path = file_dump(dump, tmp_path)
    assert read_dump(path) == dump
    assert read_dump(path).stage_totals == {"DecodingStage": 10.0}
    assert path.parent == tmp_path / "flux" / "a"
    assert [each.name for each in path.parent.iterdir()] == [path.name], "no draft is left"


@pytest.mark.parametrize(
    "content",
    [b"", b"{", json.dumps(SGLANG).encode()[:200], b"\xff\xfe", b"[]", b"3", b"{}", b'{"a": 1}', b"[" * 100_000],
)
def test_a_malformed_file_is_one_error_with_its_path(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    with pytest.raises(BadFile, match=r"bad\.json"):
        read_dump(path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("total_duration_ms", "fast"),
        ("total_duration_ms", -1),
        ("total_duration_ms", float("nan")),
        ("steps", 7),
        ("steps", [{"name": "x"}]),
        ("steps", [3]),
        ("denoise_steps_ms", [None]),
        ("denoise_steps_ms", "all"),
        ("memory_checkpoints", [1]),
        ("meta", []),
        ("kernwright", 1),
    ],
)
def test_a_bad_value_is_named_by_its_field(field: str, value: Any) -> None:
    with pytest.raises(BadFile, match=field):
        parse_dump({"total_duration_ms": 1.0, field: value}, "x.json")


def test_a_profiled_run_is_known_by_record_meta_or_command() -> None:
    plain = {"total_duration_ms": 1.0}
    assert not parse_dump(plain, "x").is_profiled
    assert parse_dump({**plain, "meta": {"profile": True}}, "x").is_profiled
    assert parse_dump({**plain, "kernwright": {"profiled": True}}, "x").is_profiled
    assert parse_dump({**plain, "kernwright": {"command": "sglang generate --profile --seed=1"}}, "x").is_profiled
    assert not parse_dump({**plain, "kernwright": {"command": "sglang generate --profiles=x"}}, "x").is_profiled


def test_dumps_are_found_by_file_folder_and_label(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNWRIGHT_DUMPS", str(tmp_path / "dumps"))
    monkeypatch.chdir(tmp_path)
    made = {}
    for preset, label in (("flux", "base"), ("flux", "new"), ("wan", "base")):
        path = dump_path(preset, label)
        write_dump(path, PerfDump(total_duration_ms=1.0))
        made[preset, label] = path
    assert find_dumps(str(made["flux", "new"])) == [made["flux", "new"]]
    assert find_dumps(str(made["flux", "new"].parent)) == [made["flux", "new"]]
    assert find_dumps("new") == [made["flux", "new"]]
    assert find_dumps("wan/base") == [made["wan", "base"]]
    with pytest.raises(KernwrightError, match=r"flux/base, wan/base"):
        find_dumps("base")
    with pytest.raises(KernwrightError, match="did you mean new"):
        find_dumps("nwe")
    with pytest.raises(KernwrightError, match="flux/base"):
        find_dumps(str(tmp_path / "dumps"))


@pytest.mark.parametrize("label", ["", "../up", "a/b", ".hidden", "a b"])
def test_a_label_that_cannot_name_a_folder_is_refused(label: str) -> None:
    with pytest.raises(KernwrightError, match="label"):
        dump_path("flux", label)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EnvironmentProblem, match=f"file{os.sep}x.json"):
        write_dump(tmp_path / "file" / "x.json", PerfDump(total_duration_ms=1.0))
