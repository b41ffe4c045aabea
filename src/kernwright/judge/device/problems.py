"""Problems of a device or a machine that prevent or end a judgement."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import torch

from kernwright.core.errors import EnvironmentProblem
from kernwright.judge.device.device import Device
from kernwright.tasks.workload import Workload


class DeviceFull(EnvironmentProblem):
    """The device has too little free memory for the arenas and regions of the workers."""


class RowsTooLarge(EnvironmentProblem):
    """The device has too little memory to judge rows with this many sides. `rows` are their ids."""

    def __init__(self, rows: Sequence[Workload], needed: int, free: int, device: Device) -> None:
        self.rows = frozenset(row.id for row in rows)
        super().__init__(
            f"row {rows[0].id} does not fit: judging it takes about {needed / 2**30:.1f} GiB, "
            f"{free / 2**30:.1f} GiB are free on {device.name}",
            "choose smaller rows with --rows (the smoke rows are sized for a CPU), or fewer baselines at once",
        )


def refuse_rows_too_large(rows: Sequence[Workload], device: Device) -> None:
    free = device.free_bytes()
    if large := [row for row in rows if device.bytes_to_judge(row) > free]:
        raise RowsTooLarge(large, device.bytes_to_judge(large[0]), free, device)


@contextlib.contextmanager
def explained_machine_errors() -> Iterator[None]:
    """Turn a full disk, a full GPU or a read-only folder into an error with cause and remedy."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise EnvironmentProblem(
            f"the device is out of memory: {str(error).splitlines()[0][:200]}", "choose smaller rows with --rows"
        ) from error
    except OSError as error:
        raise EnvironmentProblem(
            f"the operating system reports: {error}", "free space or memory, or set TMPDIR; recorded results are intact"
        ) from error
