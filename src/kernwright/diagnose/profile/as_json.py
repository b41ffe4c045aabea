"""A profile as one JSON object."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from kernwright.diagnose.idle_time import Waited
from kernwright.diagnose.profile.profile import Profile


def as_json(profile: Profile) -> dict[str, Any]:
    """Return all figures of a profile. Times are in microseconds."""
    return {
        "trace": str(profile.trace.path),
        "device": profile.trace.device_name,
        "gpu_us": profile.us,
        "devices": [
            asdict(each)
            | {"span_us": each.span_us, "idle_share": each.idle_share, "host_bound_share": each.host_bound_share}
            for each in profile.devices
        ],
        "step_source": profile.step_source,
        "steps": [asdict(each) for each in profile.steps],
        "categories": [asdict(each) for each in profile.categories],
        "kernels": [asdict(each) for each in profile.kernels],
        "waits": [_wait(each) for each in profile.waits],
        "overlaps": [asdict(each) for each in profile.overlaps],
        "fusions": [asdict(each) for each in profile.fusions],
        "notes": list(profile.notes),
    }


def _wait(waited: Waited) -> dict[str, Any]:
    return {
        "op": waited.op,
        "waited_us": waited.waited_us,
        "calls": waited.calls,
        "typical_us": waited.typical_us,
        "outliers_us": [call.duration_us for call in waited.outliers],
    }
