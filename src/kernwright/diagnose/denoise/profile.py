"""StepProfile: a Chrome trace of a few denoising steps, after one step that warms the profiler up."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

from kernwright.core.errors import EnvironmentProblem


class StepProfile:
    """A context around the denoising loop. `step` is called after each step.

    Only the first loop is recorded: the refinement of a two-stage model is not.

    Args:
        steps: steps to record; one more step comes first and is not recorded.
    """

    def __init__(self, steps: int, device: str) -> None:
        from torch import profiler

        activities = [profiler.ProfilerActivity.CPU]
        if device.partition(":")[0] == "cuda":
            activities.append(profiler.ProfilerActivity.CUDA)
        self._profiler: Any = profiler.profile(
            activities=activities,
            schedule=profiler.schedule(wait=0, warmup=1, active=steps, repeat=1),
            record_shapes=True,
            with_stack=True,
        )

    def __enter__(self) -> StepProfile:
        self._profiler.start()
        return self

    def step(self) -> None:
        self._profiler.step()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._profiler.stop()

    def write(self, path: Path) -> None:
        """Write the trace, whole or not at all. A name that ends in .gz is compressed."""
        part = path.with_name(f".part-{path.name}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._profiler.export_chrome_trace(str(part))
            part.replace(path)
        except (OSError, RuntimeError) as error:
            raise EnvironmentProblem(f"{path} cannot be written: {error}", "choose a writable folder") from error
        finally:
            part.unlink(missing_ok=True)
