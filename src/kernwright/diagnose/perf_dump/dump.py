"""PerfDump: the times and the memory of one run, with the keys that sglang writes, and with provenance."""

from __future__ import annotations

import math
import re
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from kernwright.diagnose.perf_dump.provenance import RunProvenance

DENOISE_STAGES = ("DenoisingStage", "RefinementStage")
BEFORE_DENOISE = "BeforeDenoisingStage"
PROFILER_OPTIONS = ("--profile", "--profile-all-stages")
_STEP_NAME = re.compile(r"denoising_step_(\d+)")  # older dumps list steps of the loop among the stages


class StageTime(BaseModel):
    """The duration of one stage. A stage that runs twice is listed twice."""

    model_config = ConfigDict(extra="allow")

    name: str
    duration_ms: float = Field(ge=0, allow_inf_nan=False)


class StepTime(BaseModel):
    """The duration of one step of the denoising loop."""

    model_config = ConfigDict(extra="allow")

    step: int = Field(ge=0)
    duration_ms: float = Field(ge=0, allow_inf_nan=False)


class PerfDump(BaseModel):
    """One run. Unknown keys, which other versions of sglang add, are kept."""

    model_config = ConfigDict(extra="allow")

    timestamp: str = ""
    request_id: str = ""
    commit_hash: str = "N/A"
    tag: str = ""
    total_duration_ms: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    steps: list[StageTime] = Field(default_factory=list, description="stages of the run, in the order of their ends")
    denoise_steps_ms: list[StepTime] = Field(default_factory=list)
    memory_checkpoints: dict[str, dict[str, float]] = Field(default_factory=dict, description="by place, sizes in MB")
    meta: dict[str, Any] = Field(default_factory=dict)
    kernwright: RunProvenance | None = Field(default=None, description="None in a dump that sglang wrote")

    @field_validator("timestamp", "request_id", "commit_hash", "tag", mode="before")
    @classmethod
    def _text(cls, value: object) -> str:
        return "" if value is None else str(value)

    @field_validator("steps", mode="before")
    @classmethod
    def _stages(cls, value: object) -> object:
        """Accept a list of stages, and a mapping from names to durations or to objects with one."""
        if value is None:
            return []
        if not isinstance(value, dict):
            return value
        return [
            {"name": name, **held} if isinstance(held, dict) else {"name": name, "duration_ms": held}
            for name, held in value.items()
        ]

    @field_validator("denoise_steps_ms", mode="before")
    @classmethod
    def _loop(cls, value: object) -> object:
        """Accept numbers, objects with a step and a duration, and a mapping from steps to either."""
        if value is None:
            return []
        if isinstance(value, dict):
            value = [{"step": at, **_with_duration(held)} for at, held in value.items()]
        if not isinstance(value, list):
            return value
        return [
            held if isinstance(held, StepTime) else {"step": at, **_with_duration(held)}
            for at, held in enumerate(value)
        ]

    @field_validator("memory_checkpoints", mode="before")
    @classmethod
    def _memory(cls, value: object) -> object:
        """Accept a mapping from places to sizes, and a list of sizes with a name. Only numbers count as sizes."""
        if value is None:
            return {}
        if isinstance(value, list) and all(isinstance(each, dict) for each in value):
            value = {str(each.get("name", at)): each for at, each in enumerate(value)}
        if not isinstance(value, dict) or not all(isinstance(held, dict) for held in value.values()):
            return value
        return {place: {key: size for key, size in held.items() if _is_number(size)} for place, held in value.items()}

    @field_validator("meta", mode="before")
    @classmethod
    def _no_meta(cls, value: object) -> object:
        return {} if value is None else value

    @model_validator(mode="after")
    def _separate_steps(self) -> PerfDump:
        """Move steps of the loop that are listed among the stages to their own list."""
        found = [(stage, match) for stage in self.steps if (match := _STEP_NAME.fullmatch(stage.name))]
        if found:
            self.steps = [stage for stage in self.steps if not _STEP_NAME.fullmatch(stage.name)]
            self.denoise_steps_ms = self.denoise_steps_ms or [
                StepTime(step=int(match[1]), duration_ms=stage.duration_ms) for stage, match in found
            ]
        return self

    @property
    def end_to_end_ms(self) -> float | None:
        return self.total_duration_ms

    @property
    def denoise_ms(self) -> float | None:
        """The time of the denoising stages, or of the loop's steps in a dump without such a stage."""
        stages = [stage.duration_ms for stage in self.steps if is_denoise_stage(stage.name)]
        found = stages or [step.duration_ms for step in self.denoise_steps_ms]
        return sum(found) if found else None

    @property
    def peak_memory_mb(self) -> float | None:
        return self.largest("peak_reserved_mb")

    @property
    def stage_totals(self) -> dict[str, float]:
        """The time of each stage by name. The runs of a repeated stage are added."""
        totals: dict[str, float] = {}
        for stage in self.steps:
            totals[stage.name] = totals.get(stage.name, 0.0) + stage.duration_ms
        return totals

    @property
    def is_profiled(self) -> bool:
        """True if a profiler ran, which makes every time of the run too long."""
        if self.kernwright is not None and self.kernwright.profiled:
            return True
        command = self.kernwright.command if self.kernwright is not None else ""
        words = [word.partition("=")[0] for word in command.split()]
        return bool(self.meta.get("profile")) or any(option in words for option in PROFILER_OPTIONS)

    def largest(self, size: str) -> float | None:
        """Return the largest value of a size, such as `peak_reserved_mb`, over all checkpoints."""
        return max((held[size] for held in self.memory_checkpoints.values() if size in held), default=None)


def is_denoise_stage(name: str) -> bool:
    return name.endswith(DENOISE_STAGES) and BEFORE_DENOISE not in name


def _with_duration(held: object) -> dict[str, Any]:
    return held if isinstance(held, dict) else {"duration_ms": held}


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
