"""Target: the rows of a task, the preset or the program that `kernwright ncu` profiles."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from kernwright.core.errors import KernwrightError, did_you_mean
from kernwright.diagnose.doctor.preflight import Preflight, preflight
from kernwright.diagnose.ncu.capture.capture import CaptureRequest, capture, tail_of
from kernwright.diagnose.ncu.capture.report_path import report_path
from kernwright.diagnose.ncu.capture.row_orders import chosen_rows, row_program
from kernwright.diagnose.ncu.report.profiled_kernel import ProfiledKernel
from kernwright.diagnose.presets.catalog import list_presets
from kernwright.tasks.catalog import find_task, list_tasks

MOST_LAUNCHES = 10  # default for a program or preset: profiling one launch takes a second or more


@dataclass(frozen=True, kw_only=True)
class CaptureOptions:
    """The user's options, which are the same for every kind of target."""

    kernel: str | None = None
    skip: int = 0
    count: int | None = None
    label: str = "unnamed"
    allow_busy: bool = False


@dataclass(frozen=True)
class CapturedReport:
    """One capture: what was profiled, the file, and its kernels."""

    what: str
    report: Path
    kernels: list[ProfiledKernel]


def capture_rows(
    name: str, rows: str | None, sides: Sequence[str], options: CaptureOptions, tell: Callable[[str], None]
) -> Iterator[CapturedReport]:
    """Profile the call of each side on each row of a task.

    Args:
        sides: baselines, `kernwright` for the shipped op, or folders of candidates.
        tell: gets a line of progress before each capture.
    """
    task = find_task(name)
    chosen = chosen_rows(task, rows, sides)
    machine = _machine(1, options.allow_busy, tell)
    total = len(chosen) * len(sides)
    for row_number, row in enumerate(chosen):
        for side_number, side in enumerate(sides):
            what = f"{row.id}-{Path(side).name}"
            tell(f"capture {row_number * len(sides) + side_number + 1} of {total}: {side} on {row.id}")
            with ExitStack() as stack:
                program, environment = stack.enter_context(row_program(task, row, side))
                request = CaptureRequest(
                    program=program,
                    report=report_path(options.label, f"{task.name}-{what}"),
                    kernel=options.kernel,
                    skip=options.skip,
                    count=options.count,
                    marked_only=True,
                    environment=environment | dict(machine.environment),
                )
                yield CapturedReport(f"{side} on {row.id}", request.report, capture(request))


def capture_preset(name: str, options: CaptureOptions, tell: Callable[[str], None]) -> CapturedReport:
    """Profile kernels of a preset's first denoising step. The model ends when they are captured."""
    _need_limit(f"preset {name}", options)
    machine = _machine(1, options.allow_busy, tell)
    report = report_path(options.label, name)
    denoise = ("denoise", name, "--steps", "1", "--warmup", "0", "--label", options.label)
    busy = ("--allow-busy",) if options.allow_busy else ()
    program = (
        sys.executable, "-m", "kernwright", *denoise, *busy, "--perf-dump", str(report.with_suffix(".dump.json")),
    )  # fmt: skip
    tell(f"capture of preset {name}: {options.kernel}")
    request = _request(program, report, options, machine, ends_early=True)
    return CapturedReport(name, report, capture(request))


def capture_program(program: Sequence[str], options: CaptureOptions, tell: Callable[[str], None]) -> CapturedReport:
    """Profile kernels of any program. No GPU is chosen for it, and it runs to its end."""
    _need_limit("a program", options)
    machine = _machine(None, True, tell)
    report = report_path(options.label, tail_of(program))
    tell(f"capture of `{' '.join(program)}`")
    return CapturedReport(tail_of(program), report, capture(_request(tuple(program), report, options, machine)))


def _machine(gpus: int | None, allow_busy: bool, tell: Callable[[str], None]) -> Preflight:
    """Run the preflight.

    Whether counters may be read is only known when ncu tries it: some containers hide or overstate the restriction.
    """
    machine = preflight(gpus, needs=("ncu",), allow_busy=allow_busy)
    counters = machine.report.finding("counters")
    if counters.status != "ok":
        tell(f"counters: {counters.found}: {counters.cause}; ncu tries to read them anyway")
    return machine


def _request(
    program: tuple[str, ...], report: Path, options: CaptureOptions, machine: Preflight, ends_early: bool = False
) -> CaptureRequest:
    return CaptureRequest(
        program=program,
        report=report,
        kernel=options.kernel,
        skip=options.skip,
        count=MOST_LAUNCHES if options.count is None else options.count,
        ends_early=ends_early,
        environment=dict(machine.environment) if ends_early else {},
    )


def _need_limit(what: str, options: CaptureOptions) -> None:
    if options.kernel is None and options.count is None:
        raise KernwrightError(
            f"{what} launches thousands of kernels, and each takes a second or more to profile",
            "choose some with --kernel REGEX, or the first ones with --count N; `kernwright profile` lists them",
        )


def kind_of(target: str) -> str:
    """Return whether a word names a task or a preset.

    Raises:
        KernwrightError: it names neither.
    """
    if target in list_tasks() or Path(target, "task.toml").is_file():
        return "task"
    presets = list_presets()
    if target in presets or target.endswith(".toml"):
        return "preset"
    if Path(target).is_file():
        raise KernwrightError(f"{target!r} is a file, not a task or a preset", f"stored reports: --report {target}")
    known = [*list_tasks(), *presets]
    otherwise = "name a task or a preset, or write a program after --: kernwright ncu --kernel REGEX -- python x.py"
    raise KernwrightError(f"{target!r} is neither a task nor a preset", did_you_mean(target, known, otherwise))
