"""A diagnosis as one JSON object. Times are in microseconds, shares between 0 and 1."""

from __future__ import annotations

from typing import Any

from kernwright.diagnose.catalogue.fast_path import FastPath
from kernwright.diagnose.hotspots.hotspot import Hotspot, Saving
from kernwright.diagnose.hotspots.idle_cause import IdleCause
from kernwright.diagnose.hotspots.trace_diagnosis import Diagnosis, StepGroupTime


def as_json(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return all figures of a diagnosis."""
    expected, low, high = diagnosis.saving_us
    return {
        "trace": str(diagnosis.trace.path),
        "device": diagnosis.device,
        "gpu_us": diagnosis.gpu_us,
        "copy_bandwidth": diagnosis.copy_bandwidth,
        "notes": list(diagnosis.notes),
        "steps": [_step(step) for step in diagnosis.steps],
        "idle": [_cause(cause) for cause in diagnosis.idle],
        "saving": {"us": expected, "low_us": low, "high_us": high},
        "statuses": dict(diagnosis.status_shares),
        "hotspots": [_hotspot(hotspot) for hotspot in diagnosis.hotspots],
    }


def _step(step: StepGroupTime) -> dict[str, Any]:
    return {
        "name": step.name,
        "count": step.count,
        "span_us": step.span_us,
        "gpu_us": step.gpu_us,
        "busy_us": step.busy_us,
        "idle_us": step.idle_us,
        "idle_share": step.idle_share,
    }


def _cause(cause: IdleCause) -> dict[str, Any]:
    return {
        "step": cause.step,
        "waits_for": cause.op,
        "waited_us": cause.waited_us,
        "idle_us": cause.idle_us,
        "span_us": cause.span_us,
        "sentence": cause.sentence,
        "advice": cause.advice,
    }


def _hotspot(hotspot: Hotspot) -> dict[str, Any]:
    coverage = hotspot.coverage
    return {
        "rank": hotspot.rank,
        "name": hotspot.name,
        "kind": hotspot.kind,
        "category": hotspot.category,
        "us": hotspot.us,
        "share": hotspot.share,
        "count": hotspot.count,
        "launches": hotspot.launches,
        "status": coverage.status,
        "reason": coverage.reason,
        "saving": _saving(hotspot.saving),
        "op": hotspot.op,
        "location": hotspot.location,
        "step_us": dict(hotspot.step_us),
        "fast_paths": [_path(path) for path in coverage.paths],
        "kernels": [{"name": each.name, "us": each.us, "launches": each.launches} for each in hotspot.kernels],
    }


def _saving(saving: Saving | None) -> dict[str, Any] | None:
    if saving is None:
        return None
    return {"us": saving.us, "low_us": saving.low_us, "high_us": saving.high_us, "basis": saving.basis}


def _path(path: FastPath) -> dict[str, Any]:
    return {
        "name": path.name,
        "provider": path.provider,
        "about": path.about,
        "state": path.state,
        "turn_on": path.turn_on,
        "source": path.source,
        "models": list(path.models),
        "requires": list(path.requires.in_words),
        "work": [{**each.model_dump(), "name": str(each)} for each in path.work],
    }
