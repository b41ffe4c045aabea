"""Hotspots of real traces whose answers are known, with all that a trace may have and with less of it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kernwright.diagnose.hotspots.ranking import diagnose
from kernwright.diagnose.hotspots.trace_diagnosis import Diagnosis
from kernwright.diagnose.trace.trace import read_trace

TRACES = Path(__file__).parents[1] / "traces"
ALL = ("flux1_eager", "flux1_compile", "qwen_image_eager", "wan14b_eager", "llama_eager")
# By trace: hotspots that must have a status, and the lowest and highest share of what is covered and off.
OFF = "covered, off"
ON = "covered, on"
LABELS: dict[str, tuple[dict[str, str], tuple[float, float]]] = {
    "flux1_eager": (
        {
            "qknorm_rope": OFF,
            "rope": OFF,
            "norm_modulation": OFF,
            "residual_norm_modulation": OFF,
            "residual_gate": OFF,
            "qk_norm": OFF,
            "gelu_after_linear": OFF,
        },
        (0.35, 0.40),
    ),
    "flux1_compile": ({"triton_poi_fused_cat_gelu_permute_view_3": ON}, (0.0, 0.02)),
    "qwen_image_eager": (
        {"rms_norm": OFF, "rope": OFF, "norm_modulation": OFF, "residual_gate": OFF},
        (0.34, 0.39),
    ),
    "wan14b_eager": (
        {"qknorm_rope": OFF, "norm_modulation": OFF, "residual_gate": OFF, "norm_with_casts": OFF},
        (0.28, 0.33),
    ),
    "llama_eager": (
        {"add_norm": OFF, "rope": OFF, "silu_mul": OFF, "rms_norm": OFF, "kv_cache_cat": OFF},
        (0.28, 0.32),
    ),
}


@cache
def diagnosis(name: str) -> Diagnosis:
    return diagnose(read_trace(TRACES / f"{name}.json.gz"))


def test_norms_of_heads_and_norms_of_tokens_have_different_paths() -> None:
    of_heads, of_tokens = "sglang.qknorm_rope", "trtllm.cross_head_qknorm_rope"
    for name, expected, other in (("flux1_eager", of_heads, of_tokens), ("wan14b_eager", of_tokens, of_heads)):
        found = next(each for each in diagnosis(name).hotspots if each.name == "qknorm_rope")
        paths = [path.name for path in found.coverage.paths]
        assert expected in paths and other not in paths


def rewritten(name: str, folder: Path, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> Diagnosis:
    """Return the diagnosis of a trace with other events."""
    trace = json.loads(gzip.decompress((TRACES / f"{name}.json.gz").read_bytes()))
    trace["traceEvents"] = change(trace["traceEvents"])
    path = folder / "trace.json"
    path.write_text(json.dumps(trace), encoding="utf-8")
    return diagnose(read_trace(path))


@pytest.mark.parametrize("name", ALL)
def test_every_hotspot_has_its_status(name: str) -> None:
    labels, (least, most) = LABELS[name]
    found = {hotspot.name: hotspot.coverage.status for hotspot in diagnosis(name).hotspots}
    assert {label: found.get(label) for label in labels} == labels
    assert least <= diagnosis(name).status_shares.get("covered, off", 0.0) <= most


@pytest.mark.parametrize("name", ALL)
def test_no_time_is_lost_and_none_is_other(name: str) -> None:
    own = diagnosis(name)
    events = [id(event) for hotspot in own.hotspots for work in hotspot.works for event in work.events]
    assert sorted(events) == sorted(map(id, own.trace.gpu))
    assert sum(hotspot.share for hotspot in own.hotspots) == pytest.approx(1.0)
    assert [h.name for h in own.hotspots if h.category == "other" and h.share > 0.01] == []


@pytest.mark.parametrize("name", ALL)
def test_matrix_multiplications_and_attention_of_libraries_are_on(name: str) -> None:
    large = [h for h in diagnosis(name).hotspots if h.category in ("GEMM", "attention") and h.share > 0.01]
    assert large
    assert {h.coverage.status for h in large} == {"covered, on"}


@pytest.mark.parametrize("name", ["flux1_eager", "qwen_image_eager", "wan14b_eager"])
def test_savings_lie_within_what_is_covered(name: str) -> None:
    own = diagnosis(name)
    for hotspot in own.with_status("covered, off"):
        assert hotspot.saving is not None
        assert 0 <= hotspot.saving.low_us <= hotspot.saving.us <= hotspot.saving.high_us <= hotspot.us * 1.001
    expected, low, high = own.saving_us
    assert low < expected < high
    assert expected / own.gpu_us > 0.2


def test_the_saving_of_a_chain_is_what_its_bytes_leave() -> None:
    """FLUX.1: x of 4096 or 512 tokens in and y out, at 95 % of a copy of 4.26 TB/s; modulations are small."""
    (own,) = [h for h in diagnosis("flux1_eager").hotspots if h.name == "residual_gate"]
    tokens = [work.calls[0].op.inputs[0][1][1] for work in own.works if work.calls[0].op]
    fused = sum(max(2.0, 3 * 3072 * 2 * count / 4.26e12 / 0.95 * 1e6) for count in tokens)
    assert own.saving is not None
    assert own.us - own.saving.us == pytest.approx(fused, rel=0.05)


def test_the_reason_why_decoding_is_slow_is_named() -> None:
    own = diagnosis("llama_eager")
    decode = next(step for step in own.steps if step.name == "decode")
    assert decode.count == 3
    assert decode.idle_share > 0.9
    cause = own.idle[0]
    assert (cause.step, cause.op) == ("decode", "aten::_cudnn_attention_forward")
    for part in ("idle 97%", "33 times its GPU work", "3 of its 16 calls take 38 ms", "the others take 0.08 ms"):
        assert part in cause.sentence
    assert "enable_cudnn_sdp(False)" in cause.advice


def test_prefill_and_decode_have_times_of_their_own() -> None:
    own = diagnosis("llama_eager")
    decode = max(own.hotspots, key=lambda hotspot: hotspot.step_us.get("decode", 0.0))
    prefill = max(own.hotspots, key=lambda hotspot: hotspot.step_us.get("prefill", 0.0))
    assert decode.name != prefill.name
    assert sum(h.step_us["decode"] for h in own.hotspots if "decode" in h.step_us) == pytest.approx(
        next(step.gpu_us for step in own.steps if step.name == "decode")
    )


@pytest.mark.parametrize("name", ["flux1_eager", "wan14b_eager", "llama_eager"])
def test_kernels_alone_tell_most_of_the_chains(name: str, tmp_path: Path) -> None:
    """A trace of a CUDA graph, or one without CPU activity, has no operators, shapes, Python code or launches."""
    own = rewritten(name, tmp_path, lambda events: [e for e in events if e["cat"].startswith(("kernel", "gpu_"))])
    full = diagnosis(name).status_shares
    assert own.status_shares["covered, off"] == pytest.approx(full["covered, off"], abs=0.03)
    assert any("inferred from the kernels' names" in note for note in own.notes)
    assert own.saving_us[0] == pytest.approx(diagnosis(name).saving_us[0], rel=0.25)
    assert all("no launches of the host" in cause.sentence for cause in own.idle)


def test_a_trace_without_shapes_says_so(tmp_path: Path) -> None:
    def without_shapes(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
        inputs = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")
        return [e | {"args": {k: v for k, v in e.get("args", {}).items() if k not in inputs}} for e in events]

    own = rewritten("qwen_image_eager", tmp_path, without_shapes)
    assert any("the trace has no shapes" in note for note in own.notes)
    assert own.status_shares["covered, off"] > 0.25


def test_several_gpus_in_one_trace_are_counted_together(tmp_path: Path) -> None:
    def twice(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
        copies = []
        for event in events:
            args = dict(event.get("args", {}))
            if "correlation" in args:
                args["correlation"] += 1_000_000
            if event["cat"].startswith(("kernel", "gpu_")):
                args["device"] = 1
            copies.append(event | {"pid": f"rank1 {event['pid']}", "args": args})
        return [*events, *copies]

    own, single = rewritten("wan14b_eager", tmp_path, twice), diagnosis("wan14b_eager")
    assert own.gpu_us == pytest.approx(2 * single.gpu_us)
    assert own.status_shares["covered, off"] == pytest.approx(single.status_shares["covered, off"], abs=0.01)


@pytest.mark.parametrize(
    ("gpu", "capability", "status"),
    [
        ("NVIDIA A100-SXM4-80GB", (8, 0), "covered, on"),
        ("NVIDIA H100 80GB HBM3", (9, 0), "partly"),
        ("AMD Instinct MI300X", (9, 4), "covered, on"),
    ],
)
def test_an_older_attention_kernel_is_partly_covered_where_a_newer_one_runs(
    gpu: str, capability: tuple[int, int], status: str, tmp_path: Path
) -> None:
    kernel = "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 64, 64, 4>>"
    event = {"ph": "X", "cat": "kernel", "name": kernel, "ts": 1.0, "dur": 5.0, "pid": 0, "tid": 7}
    properties = [{"name": gpu, "computeMajor": capability[0], "computeMinor": capability[1]}]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"deviceProperties": properties, "traceEvents": [event | {"args": {"device": 0}}]}))
    (hotspot,) = diagnose(read_trace(path)).hotspots
    assert hotspot.coverage.status == status
    assert (hotspot.saving is not None) == (status == "partly")
