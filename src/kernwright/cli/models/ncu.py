"""kernwright ncu: the bounds of a kernel, from hardware counters of Nsight Compute."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernwright.cli.arguments import complete_baselines, complete_rows, complete_tasks
from kernwright.cli.output import say
from kernwright.cli.program_command import program_of

if TYPE_CHECKING:
    import re

    from kernwright.diagnose.ncu.bound.kernel_diagnosis import KernelDiagnosis
    from kernwright.diagnose.ncu.capture.target import CapturedReport, CaptureOptions
    from kernwright.diagnose.ncu.report.profiled_kernel import ProfiledKernel
    from kernwright.diagnose.roofline.gpu_model import GpuModel

UNTOLD = 1  # exit status if the counters do not tell what bounds a kernel


def ncu(
    ctx: typer.Context,
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="TASK | PRESET | -- PROGRAM [ARGS]...",
            help="what to profile; with a program, options come before --",
            autocompletion=complete_tasks,
        ),
    ] = None,
    kernel: Annotated[str | None, typer.Option(metavar="REGEX", help="only kernels whose name matches")] = None,
    rows: Annotated[
        str | None,
        typer.Option(
            help="rows of the task: globs over ids, or sets; default: the first production row",
            autocompletion=complete_rows,
        ),
    ] = None,
    candidate: Annotated[
        str | None,
        typer.Option(help="folder of a candidate, or kernwright for the shipped op; it runs without a sandbox"),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            help="eager (default), compile, or a published package; with --candidate, both are profiled and compared",
            autocompletion=complete_baselines,
        ),
    ] = None,
    skip: Annotated[int, typer.Option(metavar="N", min=0, help="number of launches to leave out first")] = 0,
    count: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="maximum number of launches to profile; default: 10; for a row of a task: all"
        ),
    ] = None,
    label: Annotated[str, typer.Option(metavar="NAME", help="label under which new reports are filed")] = "unnamed",
    report: Annotated[
        list[Path] | None,
        typer.Option(
            help="stored report: .ncu-rep, or CSV of the page raw or details; give it twice for before and after"
        ),
    ] = None,
    gpu: Annotated[str | None, typer.Option(help="model of the GPU, if the report does not name it")] = None,
    allow_busy: Annotated[
        bool, typer.Option("--allow-busy", help="for a task or a preset: also accept a GPU that other processes use")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
) -> None:
    """Show what bounds a kernel, with the counters that show it, usual remedies, and its place on the roofline.

    Profiles a row of a task, a preset or a program on a GPU. Stored reports are read without a GPU. Two reports are
    compared kernel by kernel. The output of the program goes to standard error.

    Exit status: 1 if the counters do not show the bound of every kernel, else 0.
    """
    program, model = program_of(ctx), _model(gpu)
    _compiled(kernel)
    _check_usage(target, program, report, rows=rows, candidate=candidate, baseline=baseline)
    if report:
        sides = [_stored(path, kernel, model) for path in report]
    else:
        from kernwright.diagnose.ncu.capture.target import CaptureOptions

        options = CaptureOptions(kernel=kernel, skip=skip, count=count, label=label, allow_busy=allow_busy)
        wanted = [side for side in (baseline, candidate) if side is not None]
        sides = [_captured(each, model) for each in _capture(target, program, rows, wanted, options)]
    if len(sides) > 1 and (report or (baseline and candidate)):
        _show_pairs(sides[::2], sides[1::2], as_json)
    else:
        _show([each for side in sides for each in side], as_json)
    raise typer.Exit(UNTOLD if any(each.main is None for side in sides for each in side) else 0)


def _check_usage(
    target: str | None, program: list[str] | None, report: list[Path] | None, **of_task: str | None
) -> None:
    from kernwright.core.errors import KernwrightError

    given = [name for name, one in (("a target", target), ("a program", program), ("--report", report)) if one]
    if program == []:
        raise KernwrightError(
            "no program is given after --", "write it as in: kernwright ncu --kernel REGEX -- python x.py"
        )
    if not given:
        raise KernwrightError(
            "nothing is given to profile or to read", "name a task, a preset, -- PROGRAM, or --report FILE"
        )
    if len(given) > 1:
        raise KernwrightError(f"{' and '.join(given)} exclude each other", "choose one of them")
    if report and len(report) > 2:
        raise KernwrightError(f"--report was given {len(report)} times", "give one report, or one before and one after")
    if not target and (misplaced := [name for name, value in of_task.items() if value is not None]):
        raise KernwrightError(f"--{misplaced[0]} needs a task", "name the task, or leave the option out")


def _capture(
    target: str | None, program: list[str] | None, rows: str | None, sides: list[str], options: CaptureOptions
) -> list[CapturedReport]:
    from kernwright.capture.program import end_like
    from kernwright.core.errors import KernwrightError
    from kernwright.diagnose.ncu.capture.capture import CaptureInterrupted
    from kernwright.diagnose.ncu.capture.target import capture_preset, capture_program, capture_rows, kind_of

    def tell(line: str) -> None:
        say(f"kernwright: {line}", err=True)

    try:
        if program is not None:
            found = [capture_program(program, options, tell)]
        elif kind_of(str(target)) == "task":
            found = list(capture_rows(str(target), rows, sides or ["eager"], options, tell))
        elif rows or sides:
            raise KernwrightError(f"preset {target} has no rows", "leave --rows, --candidate and --baseline out")
        else:
            found = [capture_preset(str(target), options, tell)]
    except CaptureInterrupted as interrupted:
        tell(str(interrupted))
        end_like(-interrupted.number)
    for each in found:
        tell(f"kept: {each.report}, {each.report.with_suffix('.csv').name}")
    return found


def _model(name: str | None) -> GpuModel | None:
    from kernwright.core.errors import KernwrightError, did_you_mean
    from kernwright.diagnose.roofline.gpu_model import gpu_models, gpu_named

    if name is None:
        return None
    if model := gpu_named(name):
        return model
    titles = [each.title for each in gpu_models()]
    raise KernwrightError(f"--gpu {name!r} is not known", did_you_mean(name, titles, f"known: {', '.join(titles)}"))


def _captured(captured: CapturedReport, model: GpuModel | None) -> list[KernelDiagnosis]:
    return _diagnoses(captured.kernels, captured.kernels, model)


def _stored(path: Path, pattern: str | None, model: GpuModel | None) -> list[KernelDiagnosis]:
    from kernwright.core.errors import KernwrightError
    from kernwright.diagnose.ncu.report.report_file import read_report

    kernels, wanted = read_report(path), _compiled(pattern)
    chosen = [each for each in kernels if wanted is None or wanted.search(each.name)]
    if not chosen:
        names = ", ".join(dict.fromkeys(each.short_name for each in kernels))
        raise KernwrightError(f"{path}: no kernel matches {pattern!r}", f"the report has: {names}")
    return _diagnoses(chosen, kernels, model)


def _diagnoses(
    chosen: list[ProfiledKernel], report: list[ProfiledKernel], model: GpuModel | None
) -> list[KernelDiagnosis]:
    from kernwright.diagnose.ncu.bound.kernel_diagnosis import diagnose

    return [diagnose(each, report, model) for each in chosen]


def _compiled(pattern: str | None) -> re.Pattern[str] | None:
    import re

    from kernwright.core.errors import KernwrightError

    try:
        return re.compile(pattern) if pattern is not None else None
    except re.error as error:
        raise KernwrightError(
            f"--kernel {pattern!r} is not a regular expression: {error}", "escape special characters with \\"
        ) from None


def _show(diagnoses: list[KernelDiagnosis], as_json: bool) -> None:
    import json

    from kernwright.diagnose.ncu import diagnosis_output

    if as_json:
        say(json.dumps({"kernels": [diagnosis_output.as_json(each) for each in diagnoses]}, indent=2))
        return
    for number, each in enumerate(diagnoses):
        if number:
            say("")
        for line in diagnosis_output.lines_of(each):
            say(line)


def _show_pairs(before: list[list[KernelDiagnosis]], after: list[list[KernelDiagnosis]], as_json: bool) -> None:
    """Print pairs of reports: two stored ones, or those of each row."""
    import json

    from kernwright.diagnose.ncu import diagnosis_output
    from kernwright.diagnose.ncu.kernel_pair import pair_reports

    found = [pair_reports(*sides) for sides in zip(before, after, strict=True)]
    if as_json:
        say(json.dumps({"reports": [diagnosis_output.pair_json(pair) for pair in found]}, indent=2))
        return
    for pair in found:
        for line in diagnosis_output.report_pair_lines(pair):
            say(line)
