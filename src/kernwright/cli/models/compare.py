"""kernwright compare: changes of times and memory between runs, with their noise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kernwright.cli.output import say

if TYPE_CHECKING:
    from kernwright.diagnose.compare.comparison import Comparison

REGRESSION = 1  # exit status of --gate


def compare(
    base: Annotated[str, typer.Argument(metavar="BASE", help="perf dump, folder of perf dumps, or label")],
    new: Annotated[
        list[str],
        typer.Argument(
            metavar="NEW...", help="one or more to compare with BASE, named in the same way; each has its own columns"
        ),
    ],
    markdown: Annotated[bool, typer.Option("--markdown", help="print a Markdown table")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object with all figures")] = False,
    gate: Annotated[
        bool, typer.Option("--gate", help="exit with status 1 if a regression is larger than the noise")
    ] = False,
    threshold: Annotated[
        float | None,
        typer.Option(
            metavar="PERCENT",
            help="ignore regressions of --gate below this; default: 0 with an interval, 2 % between single runs",
        ),
    ] = None,
    different: Annotated[
        bool, typer.Option("--different", help="also compare runs of different workloads, with a note")
    ] = False,
) -> None:
    """Compare the perf dumps of runs: end to end, stages, denoise steps and memory.

    All dumps of a label are repeated runs. Their noise determines the interval of each difference. Runs that took turns
    are compared in pairs. Dumps of sglang are read, too.

    Exit status: with --gate, 1 if end to end, the denoising loop or memory became worse; else 0.
    """
    from kernwright.core.errors import KernwrightError
    from kernwright.diagnose.compare.comparison import compare_names

    if threshold is not None and not gate:
        raise KernwrightError(f"--threshold {threshold:g} needs --gate", "add --gate, or leave --threshold out")
    if threshold is not None and not 0 <= threshold < float("inf"):
        raise KernwrightError(f"--threshold must be at least 0, got {threshold:g}", "give the slowdown in percent")
    if markdown and as_json:
        raise KernwrightError("--markdown and --json exclude each other", "choose one of them")
    comparison = compare_names([base, *new], different)
    regressions = comparison.regressions(None if threshold is None else threshold / 100) if gate else []
    show(comparison, markdown=markdown, as_json=as_json, regressions=regressions if gate else None)
    if regressions:
        for line in regressions:
            say(f"kernwright: regression: {line}", err=True)
        raise typer.Exit(REGRESSION)


def show(
    comparison: Comparison, *, markdown: bool = False, as_json: bool = False, regressions: list[str] | None = None
) -> None:
    """Print a comparison.

    Args:
        regressions: the findings of the gate, for the JSON object; None without a gate.
    """
    import json

    from kernwright.diagnose.compare.table import heading, lines

    if as_json:
        held = comparison.as_json() | ({} if regressions is None else {"regressions": regressions})
        say(json.dumps(held, indent=2))
        return
    if markdown:
        from kernwright.report.markdown import escaped, table

        for line in table(heading(comparison), lines(comparison), len(heading(comparison)) - 1):
            say(line)
        say("")
        for note in comparison.notes:
            say(f"- {escaped(note)}")
        return
    from kernwright.cli.columns import print_columns

    head = heading(comparison)
    print_columns(
        head, [(cells[:-1], [cells[-1]]) for cells in lines(comparison)], [n for n in head[1:] if n != "result"]
    )
    for note in comparison.notes:
        say(f"note: {note}")
