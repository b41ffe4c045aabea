"""DumpRecorder: the times of a run in this process, with stages that wait for the device."""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from kernwright.diagnose.perf_dump.dump import PerfDump, StageTime, StepTime
from kernwright.diagnose.perf_dump.provenance import RunProvenance, collect_provenance, commit_hash

MB = 1024.0**2


class DumpRecorder:
    """Records one run.

    The device is synchronised at both ends of a stage, so the stage has the time of the work that it launched. Steps of
    the denoising loop are not synchronised, because the GPU would idle between them: CUDA events mark their ends on
    the current stream, and are read after the run. On a CPU the clock is read.

    A stage that raises is not recorded.
    """

    def __init__(self, device: str = "cpu") -> None:
        self._cuda: Any = None
        if device.partition(":")[0] == "cuda":
            import torch

            self._cuda = torch.cuda
            self._device = torch.device(device)
        self._stages: list[StageTime] = []
        self._steps: list[float | tuple[Any, Any]] = []
        self._memory: dict[str, dict[str, float]] = {}
        self._total_ms: float | None = None
        self._started = datetime.now(UTC)
        self._gradients: bool | None = None  # True if a step ran under autograd; None without steps

    @property
    def stages(self) -> list[StageTime]:
        """The stages that have ended, in this order."""
        return list(self._stages)

    def synchronise(self) -> None:
        if self._cuda is not None:
            self._cuda.synchronize(self._device)

    @contextmanager
    def run(self) -> Iterator[None]:
        """Time the whole run, end to end. The peak of the device's memory is reset first."""
        if self._cuda is not None:
            self._cuda.reset_peak_memory_stats(self._device)
        self._started = datetime.now(UTC)
        self.synchronise()
        begin = time.perf_counter()
        yield
        self.synchronise()
        self._total_ms = (time.perf_counter() - begin) * 1e3

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a stage. A name may repeat: each run of the stage is kept."""
        self.synchronise()
        begin = time.perf_counter()
        yield
        self.synchronise()
        self._stages.append(StageTime(name=name, duration_ms=(time.perf_counter() - begin) * 1e3))

    @contextmanager
    def denoise_step(self) -> Iterator[None]:
        """Time a step of the denoising loop."""
        torch = sys.modules.get("torch")
        self._gradients = bool(self._gradients) or (torch is not None and torch.is_grad_enabled())
        if self._cuda is None:
            begin = time.perf_counter()
            yield
            self._steps.append((time.perf_counter() - begin) * 1e3)
            return
        ends = [self._cuda.Event(enable_timing=True) for _ in range(2)]
        ends[0].record()
        yield
        ends[1].record()
        self._steps.append((ends[0], ends[1]))

    def checkpoint(self, name: str) -> None:
        """Record the memory of the device under the name of a place. A CPU has none; a repeated name is numbered."""
        if self._cuda is None:
            return
        number, key = 1, name
        while key in self._memory:
            number += 1
            key = f"{name}#{number}"
        self._memory[key] = {
            "allocated_mb": self._cuda.memory_allocated(self._device) / MB,
            "reserved_mb": self._cuda.memory_reserved(self._device) / MB,
            "peak_allocated_mb": self._cuda.max_memory_allocated(self._device) / MB,
            "peak_reserved_mb": self._cuda.max_memory_reserved(self._device) / MB,
        }

    def dump(
        self, provenance: RunProvenance | None = None, meta: dict[str, Any] | None = None, tag: str = "kernwright"
    ) -> PerfDump:
        """Return the record of the run."""
        self.synchronise()
        provenance = provenance or collect_provenance()
        if self._gradients is not None:
            provenance = provenance.model_copy(update={"gradients": self._gradients})
        steps = [each if isinstance(each, float) else float(each[0].elapsed_time(each[1])) for each in self._steps]
        return PerfDump(
            timestamp=self._started.isoformat(timespec="milliseconds"),
            request_id=secrets.token_hex(8),
            commit_hash=commit_hash(),
            tag=tag,
            total_duration_ms=self._total_ms,
            steps=self._stages,
            denoise_steps_ms=[StepTime(step=at, duration_ms=taken) for at, taken in enumerate(steps)],
            memory_checkpoints=self._memory,
            meta=meta or {},
            kernwright=provenance,
        )
