"""Tuner: fill a user's table of configurations from the rows of tasks, one situation at a time.

Measurements are written at once, so that an interrupted tuner continues where it stopped. Compilation takes most of the
time. It comes first, in parallel processes that each launch the kernel once for Triton's own cache. Nothing else runs
on the device while times are taken.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import importlib.util
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import torch

from kernwright.baselines.shipped import Shipped
from kernwright.campaign.time_limit import checked_minutes
from kernwright.campaign.tuning.search import ListSearch
from kernwright.campaign.tuning.trial import Outcome, TuningTrial, Work, blank_call, triton_of
from kernwright.core.errors import EnvironmentProblem, KernwrightError
from kernwright.core.version import __version__
from kernwright.judge.device.cuda.nvml import Nvml
from kernwright.judge.rounds.progress import Progress
from kernwright.ops.catalog import dispatcher
from kernwright.runtime.triton.configurations import HELD, KERNELS, Configuration, Situation, of_tiles, power_of_two
from kernwright.runtime.triton.tuning import (
    Place,
    TuningTable,
    forget,
    is_interpreted,
    model_of,
    situation_of,
    trying,
    user_file,
)
from kernwright.tasks.task import Task
from kernwright.tasks.workload import Workload

MOST_INTERPRETED = 2  # number of configurations in the interpreter, where they only test the procedure
COMPILERS_SHARE = 0.6  # share of the given minutes for compilation


def candidates(situation: Situation) -> list[Configuration]:
    """Return the configurations worth a try: each thread has 8 to 64 values, which hide memory latency and fit its
    registers."""
    width, whole = situation.width, power_of_two(max(situation.width, 16))
    if KERNELS[situation.op] is of_tiles:
        blocks = [block for block in (2048, 1024, 512, 256) if block <= whole and width % block == 0][:2] or [whole]
        shapes = [(max(1, 32 * warps * each // block), block, warps)
                  for block in blocks if block <= 2048 for warps in (4, 8) for each in (8, 16, 32)]  # fmt: skip
        return _distinct(shapes or [(1, 1024, 4), (2, 1024, 4), (4, 1024, 8)])
    if whole <= 512:
        shapes = [(rows, whole, warps) for warps in (1, 2, 4, 8) for rows in (1, 2, 4, 8, 16, 32, 64)]
        return _distinct(shape for shape in shapes if 4 <= shape[0] * whole // (32 * shape[2]) <= 32)
    held = [(rows, whole, warps) for rows in (1, 2) for warps in (2, 4, 8, 16, 32) if whole <= HELD]
    held = [shape for shape in held if 8 <= shape[0] * whole // (32 * shape[2]) <= 64]
    pieces = [(1, block, warps) for block, warps in ((1024, 4), (2048, 8), (4096, 8), (4096, 16), (8192, 16))]
    # Pieces read a token twice. With a remainder, or with few pieces, this costs more than it gains.
    pieces = [shape for shape in pieces if whole > HELD or (shape[1] < width and width % shape[1] == 0)]
    return _distinct([*held, *pieces[: 5 if whole > HELD else 2]])


def _distinct(shapes: Iterable[tuple[int, int, int]]) -> list[Configuration]:
    return list(dict.fromkeys(Configuration(*shape) for shape in shapes))


def works_of(tasks: Iterable[Task], pattern: str, ops: Collection[str] = (), widths: Sequence[int] = ()) -> list[Work]:
    """Return one row per situation: the one with the median number of bytes."""
    found: dict[Situation, list[Work]] = {}
    for task in tasks:
        shipped = Shipped.of(task).ops
        for row in task.matching(pattern):
            op = task.op_of(row)
            if row.op not in shipped or (ops and row.op not in ops) or op.inplace or triton_of(op) is None:
                continue
            for own in _widened(row, op.activations[0], widths) if widths else [row]:
                asked = situation_of(blank_call(own, torch.device("meta")))
                if asked is not None:
                    found.setdefault(asked, []).append(Work(asked, task, own))

    order = sorted(found, key=lambda own: (own.op, own.width, own.element_bytes, own.is_few))
    return [_middle(found[situation]) for situation in order]


def _middle(works: list[Work]) -> Work:
    return sorted(works, key=lambda work: work.row.fewest_bytes())[(len(works) - 1) // 2]


def _widened(row: Workload, first: str, widths: Sequence[int]) -> Iterator[Workload]:
    """Yield the row at other widths. A row with captured strides keeps them, so it can only become narrower."""
    axis = row.inputs[first].shape[-1]
    for width in widths:
        if isinstance(axis, str) and axis in row.axes and (width <= row.axes[axis] or not row.has_strided_tensors):
            yield row.resized({axis: width})


def place_of(device: torch.device) -> Place:
    triton_version = importlib.metadata.version("triton")
    if device.type != "cuda":
        return Place(device="Triton's interpreter", torch=torch.__version__, triton=triton_version)
    properties = torch.cuda.get_device_properties(device)
    return Place(
        device=properties.name,
        capability=f"{properties.major}.{properties.minor}",
        driver=str(Nvml(properties).identity()["driver"]),
        torch=torch.__version__,
        triton=triton_version,
    )


def find_device(name: str) -> torch.device:
    """Return the device that Triton runs on. Raise if Triton does not support it."""
    try:
        device = torch.device(name)
    except RuntimeError:
        raise KernwrightError(f"--device must be cuda or cuda:N, got {name!r}", "use --device cuda") from None
    if importlib.util.find_spec("triton") is None:
        raise EnvironmentProblem("triton is not installed", "pip install triton")
    if device.type == "cuda" and torch.cuda.is_available() and not is_interpreted():
        return torch.device("cuda", device.index or 0)
    if device.type == "cpu" and is_interpreted():
        return device
    if device.type == "cpu":
        raise KernwrightError(
            "--device cpu: Triton's kernels run on a GPU",
            "name cuda; TRITON_INTERPRET=1 tries the procedure on a CPU, where times mean nothing",
        )
    why = "TRITON_INTERPRET is set" if is_interpreted() else "torch sees no CUDA device"
    raise EnvironmentProblem(f"--device {name}: {why}", "tune on the GPU that the kernels will run on")


class Tuner:
    """Measures the configurations of all works. `told` receives messages for the user, such as a discarded file."""

    def __init__(
        self, works: Sequence[Work], device: torch.device, minutes: float = 0.0, again: bool = False,
        told: Callable[[str], None] = lambda text: None,
    ) -> None:  # fmt: skip
        self.device = device
        self.path: Path = user_file(str(model_of(device)))
        self.table = self._begun(told)
        self.works = [work for work in works if again or self.table.entry(work.situation) is None]
        self._minutes, self._start = checked_minutes(minutes), time.monotonic()

    def _begun(self, told: Callable[[str], None]) -> TuningTable:
        new = TuningTable(place=place_of(self.device), kernwright=__version__, date=str(datetime.date.today()))
        try:
            before = TuningTable.read(self.path)
        except FileNotFoundError:
            return new
        except (OSError, ValueError):
            told(f"{self.path} is not a tuning table of this release: it is replaced")
            return new
        if before.place != new.place:
            told(f"{self.path} was measured with another driver, torch or Triton: it is replaced")
            return new
        return before.model_copy(update={"date": new.date, "kernwright": new.kernwright})

    def run(self, progress: Progress) -> Iterator[Outcome]:
        """Yield the outcome of each work until the time is over. Entries are written before they are yielded."""
        ready = self._compiled(progress) if self.device.type == "cuda" else self.works
        progress.phase("measuring", len(ready))
        longest = 0.0
        for work in ready:
            begun = time.monotonic()
            if longest > self._left(1.0):
                return
            outcome = self._outcome(work)
            if outcome.entry is not None:
                self.table = self.table.with_entry(outcome.entry)
                self.table.write(self.path)
                forget()
            progress.step(str(work.situation))
            longest = max(longest, time.monotonic() - begun)
            yield outcome

    def _left(self, share: float) -> float:
        """Return the seconds until a share of the minutes is over."""
        return self._start + self._minutes * 60 * share - time.monotonic() if self._minutes else float("inf")

    def _outcome(self, work: Work) -> Outcome:
        try:
            own = candidates(work.situation)
            return TuningTrial(work, self.device).run(own if self.device.type == "cuda" else own[:MOST_INTERPRETED])
        except Exception as error:  # for example too little memory; the other situations are still measured
            return Outcome(work, problem=f"{type(error).__name__}: {error}".splitlines()[0])
        finally:
            if self.device.type == "cuda":
                torch.cuda.empty_cache()

    def _compiled(self, progress: Progress) -> list[Work]:
        """Return the works whose configurations were compiled in time; all works if a compiler crashed."""
        count = max(1, min(len(os.sched_getaffinity(0)), 16))
        jobs: dict[Future[None], Work] = {}
        pool = ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), _leave_interrupts)
        progress.phase("compiling", len(self.works))
        try:
            for work in self.works:
                for each in ListSearch(work.situation.default, candidates(work.situation)):
                    jobs[pool.submit(_compile, work.row, each, str(self.device))] = work
            open_jobs = {work.situation: 0 for work in self.works}
            for work in jobs.values():
                open_jobs[work.situation] += 1
            waiting = set(jobs)
            while waiting and self._left(COMPILERS_SHARE) > 0:
                done, waiting = wait(waiting, timeout=1.0, return_when="FIRST_COMPLETED")
                for job in done:
                    job.result()
                    open_jobs[jobs[job].situation] -= 1
                    if open_jobs[jobs[job].situation] == 0:
                        progress.step(str(jobs[job].situation))
        except BrokenProcessPool:
            return self.works  # the trial runs the configuration again and names it
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
        return [work for work in self.works if open_jobs[work.situation] == 0]


def _leave_interrupts() -> None:
    """Ignore Ctrl-C in a compiler process: the tuner handles it and ends the compilers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _compile(row: Workload, configuration: Configuration, device: str) -> None:
    """Compile one configuration, in a separate process. A failure is reported by the trial, which compiles it again."""
    own = triton_of(dispatcher(row.op).op)
    assert own is not None
    try:
        with trying(configuration), torch.no_grad():
            tensors, scalars = blank_call(row, torch.device(device)).parts
            own.function(*tensors, **scalars)
    except Exception:  # an error of any compiler
        return
