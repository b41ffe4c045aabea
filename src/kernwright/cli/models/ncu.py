"""kernwright ncu: what bounds a kernel, from hardware counters of Nsight Compute."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernwright.cli.output import say

if TYPE_CHECKING:
    import re

    from kernwright.diagnose.ncu.bound.diagnosis import KernelDiagnosis
    from kernwright.diagnose.roofline.gpu_model import GpuModel

SETTINGS = {"allow_interspersed_args": False}
UNTOLD = 1  # exit status if the counters do not tell what bounds a kernel


def ncu(
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="TASK | PRESET | -- PROGRAM [ARGS]...", help="what to profile"),
    ] = None,
    report: Annotated[
        list[Path] | None,
        typer.Option(help="stored report: .ncu-rep, or CSV of the pages raw or details; twice: before and after"),
    ] = None,
    kernel: Annotated[str | None, typer.Option(metavar="REGEX", help="only kernels whose name has a match")] = None,
    gpu: Annotated[str | None, typer.Option(help="model of the GPU, if the report does not have it")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
) -> None:
    """Say what bounds a kernel, with the counters that show it, what usually helps, and its place on the roofline.

    Reads stored reports without a GPU. Two reports are compared kernel by kernel.

    Exit status: 0; 1 if the counters do not tell the bound of some kernel.
    """
    from kernwright.core.errors import KernwrightError

    model = _model(gpu)
    if not report:
        raise KernwrightError("no report was named", "name one with --report FILE")
    if len(report) > 2:
        raise KernwrightError(f"--report was given {len(report)} times", "give one report, or one before and one after")
    sides = [_diagnoses(path, kernel, model) for path in report]
    if len(sides) == 1:
        _show(sides[0], as_json)
    else:
        _show_pair(sides[0], sides[1], as_json)
    raise typer.Exit(UNTOLD if any(each.main is None for side in sides for each in side) else 0)


def _model(name: str | None) -> GpuModel | None:
    from kernwright.core.errors import KernwrightError, did_you_mean
    from kernwright.diagnose.roofline.gpu_model import gpu_models, gpu_named

    if name is None:
        return None
    if model := gpu_named(name):
        return model
    titles = [each.title for each in gpu_models()]
    raise KernwrightError(f"--gpu {name!r} is not known", did_you_mean(name, titles, f"known: {', '.join(titles)}"))


def _diagnoses(path: Path, pattern: str | None, model: GpuModel | None) -> list[KernelDiagnosis]:
    from kernwright.core.errors import KernwrightError
    from kernwright.diagnose.ncu.bound.diagnosis import diagnose
    from kernwright.diagnose.ncu.report.report_file import read_report

    kernels = read_report(path)
    wanted = _compiled(pattern)
    chosen = [each for each in kernels if wanted is None or wanted.search(each.name)]
    if not chosen:
        names = ", ".join(dict.fromkeys(each.short_name for each in kernels))
        raise KernwrightError(f"{path}: no kernel matches {pattern!r}", f"the report has: {names}")
    return [diagnose(each, kernels, model) for each in chosen]


def _compiled(pattern: str | None) -> re.Pattern[str] | None:
    import re

    from kernwright.core.errors import KernwrightError

    try:
        return re.compile(pattern) if pattern is not None else None
    except re.error as error:
        raise KernwrightError(f"--kernel {pattern!r} is no regular expression: {error}", "escape it") from None


def _show(diagnoses: list[KernelDiagnosis], as_json: bool) -> None:
    import json

    from kernwright.diagnose.ncu import wording

    if as_json:
        say(json.dumps({"kernels": [wording.as_json(each) for each in diagnoses]}, indent=2))
        return
    for number, each in enumerate(diagnoses):
        if number:
            say("")
        for line in wording.lines_of(each):
            say(line)


def _show_pair(before: list[KernelDiagnosis], after: list[KernelDiagnosis], as_json: bool) -> None:
    import json

    from kernwright.diagnose.ncu import wording
    from kernwright.diagnose.ncu.kernel_pair import pair_reports

    pair = pair_reports(before, after)
    if as_json:
        say(json.dumps(wording.pair_json(pair), indent=2))
        return
    for each in pair.pairs:
        for line in wording.pair_lines(each):
            say(line)
        say("")
    for line in wording.left_over_lines(pair):
        say(line)
