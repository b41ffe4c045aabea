"""kernwright doctor: check that this machine can run, measure and profile models, with remedies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kernwright.cli.output import say

if TYPE_CHECKING:
    from kernwright.diagnose.doctor.finding import Finding
    from kernwright.diagnose.doctor.report import DoctorReport

UNFIT = 1  # exit status if there is a problem


def doctor(
    require: Annotated[
        list[str] | None,
        typer.Option(metavar="CHECK", help="name of a check that must be ok, such as ncu; repeatable"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the findings as JSON")] = False,
) -> None:
    """Check this machine: GPUs, software, profilers, disk. Print a remedy for each problem.

    Exit status: 1 if there is a problem or a required check is not ok, else 0. A missing tool counts only
    if it is required.
    """
    from kernwright.diagnose.doctor.report import examine

    report = examine()
    failures = report.failures(require or [])
    if as_json:
        _print_json(report, failures)
    else:
        _print_table(report, failures)
    raise typer.Exit(UNFIT if failures else 0)


def _print_json(report: DoctorReport, failures: list[Finding]) -> None:
    import json

    say(json.dumps({"fit": not failures, "failures": [each.check for each in failures], "checks": report.as_json()}))


def _print_table(report: DoctorReport, failures: list[Finding]) -> None:
    from kernwright.cli.columns import print_columns

    rows = [
        (
            (each.check, each.status),
            (each.found, each.cause, f"remedy: {each.remedy}" if each.remedy else ""),
        )
        for each in report.findings
    ]
    print_columns(("check", "status", "found"), rows)
    counts = {status: sum(each.status == status for each in report.findings) for status in ("problem", "warning")}
    summary = ", ".join(f"{count} {status}{'s' if count != 1 else ''}" for status, count in counts.items() if count)
    say(f"\n{summary or 'no problems'}")
    for each in failures:
        if each.status != "problem":
            say(f"required, but {each.status}: {each.check}", err=True)
