"""Runs of `kernwright run --swap`: printed outcome, filed dumps, and exit status."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from kernwright.cli.models.program_end import end_like_program, tell

if TYPE_CHECKING:
    from kernwright.diagnose.doctor.preflight import Preflight
    from kernwright.diagnose.swap.swap import Swap
    from kernwright.diagnose.swap.swapped_run import ProgramRun

FAILED = 1  # exit status if the run is no result for a candidate
MOST_TURNS = 1000
NO_VERDICT = "the candidate ran in the program's own process: this is not a verdict; `kernwright judge` gives one"


def run_swapped(
    command: Sequence[str], texts: Sequence[str], turns: int, label: str | None, ready: Preflight
) -> NoReturn:
    """Run a program with functions replaced, with `turns` alternately with and without. Exit with its status."""
    from kernwright.capture.program import end_like
    from kernwright.core.errors import KernwrightError
    from kernwright.diagnose.swap.swap import parse_swap
    from kernwright.diagnose.swap.swapped_run import check_label, file_run, run_program

    swaps = [parse_swap(text) for text in texts]
    targets = [swap.target for swap in swaps]
    if repeated := [target for target in targets if targets.count(target) > 1]:
        raise KernwrightError(f"--swap {repeated[0]} is given twice", "a function has one candidate at a time")
    if not 0 <= turns <= MOST_TURNS or turns == 1:
        raise KernwrightError(
            f"--turns must be 0 or from 2 to {MOST_TURNS}, got {turns}", "give 6 for a narrow interval"
        )
    label = label or swaps[0].name
    check_label(label)
    run = run_program(command, swaps, ready=ready)
    _print_report(run)
    _end_if_bad(run)
    if not turns:
        tell(f"perf dump of {label}: {file_run(run, label)}")
        if run.dump.tag != "wall_time" and run.report is not None and run.report.extra_ms >= 1:
            tell("its times include the comparisons; --turns runs the program again without them")
        tell(NO_VERDICT)
        end_like(0)
    _compare_in_turns(command, swaps, turns, label, ready)
    tell(NO_VERDICT)
    end_like(0)


def _compare_in_turns(command: Sequence[str], swaps: Sequence[Swap], turns: int, label: str, ready: Preflight) -> None:
    from kernwright.cli.models.compare import show
    from kernwright.diagnose.compare.comparison import compare_sides
    from kernwright.diagnose.compare.label_runs import LabelRuns
    from kernwright.diagnose.perf_dump.dump_files import file_dump
    from kernwright.diagnose.swap.swapped_run import BASE, take_turns

    held: dict[str, list[tuple[ProgramRun, object]]] = {BASE: [], label: []}
    for done, (name, run) in enumerate(take_turns(command, swaps, turns, label, ready), 1):
        tell(f"run {done} of {2 * turns}, {name}: {(run.dump.end_to_end_ms or run.dump.denoise_ms or 0) / 1e3:.3f} s")
        if not run.is_good:
            _print_report(run)
        _end_if_bad(run)
        held[name].append((run, file_dump(run.dump)))
    sides = [
        LabelRuns(name, tuple(path for _, path in runs), tuple(run.dump for run, _ in runs))  # type: ignore[misc]
        for name, runs in held.items()
    ]
    show(compare_sides(sides))


def _print_report(run: ProgramRun) -> None:
    if run.report is None:
        return
    for line in run.report.lines():
        tell(line)
    if run.report.extra_ms >= 1:
        tell(f"loading and comparing took {run.report.extra_ms / 1e3:.2f} s of the run")


def _end_if_bad(run: ProgramRun) -> None:
    """Exit if the program failed or was stopped, or if the run is no result for the candidate."""

    if run.is_good:
        return
    if run.report is not None and not (run.ending.status or run.ending.sign or run.ending.interrupted):
        from kernwright.capture.program import end_like

        end_like(FAILED)
    end_like_program(run.ending)
