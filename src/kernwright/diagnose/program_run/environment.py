"""The environment of a run."""

from __future__ import annotations

from collections.abc import Mapping

from kernwright.core.runtime_interface import STRICT_VARIABLE
from kernwright.diagnose.doctor.hub import OFFLINE

SYNCHRONISED = "SGLANG_DIFFUSION_SYNC_STAGE_PROFILING"  # otherwise a stage may hold the time of the one before it
USUAL = {"FLASHINFER_DISABLE_VERSION_CHECK": "1", SYNCHRONISED: "1"}
NO_DOWNLOADS = {OFFLINE: "1", "TRANSFORMERS_OFFLINE": "1"}
AS_IT_COMES = {"PYTHONUNBUFFERED": "1"}  # without a terminal, Python delays output
ON = ("1", "true", "yes", "on")


def added_variables(
    present: Mapping[str, str], preset: Mapping[str, str], offline: bool = False, strict: bool = False
) -> dict[str, str]:
    """Return the variables that a run adds to the present ones. A value that the user has set stays.

    Args:
        preset: variables of a preset.
        offline: nothing is downloaded.
        strict: a fallback of our ops is an error.
    """
    added = {name: value for name, value in (USUAL | dict(preset)).items() if name not in present}
    return added | (NO_DOWNLOADS if offline else {}) | ({STRICT_VARIABLE: "1"} if strict else {})


def is_on(environment: Mapping[str, str], name: str) -> bool:
    return environment.get(name, "").strip().lower() in ON
