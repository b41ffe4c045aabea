"""kernwright hotspots: the GPU work of a trace by time, with the known fast paths that would remove it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernwright.cli.output import refuse_unwritable, say

if TYPE_CHECKING:
    from kernwright.diagnose.hotspots.trace_diagnosis import Diagnosis

WORTH_A_TASK = 0.01  # share of the time from which a new hotspot is worth a task


def hotspots(
    trace: Annotated[
        Path, typer.Argument(metavar="TRACE", help="Chrome trace of torch.profiler, plain or gzip, or export of nsys")
    ],
    least: Annotated[
        str, typer.Option(metavar="PERCENT", help="list hotspots from this share of the time, such as 1%")
    ] = "1%",
    catalogue: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="TOML file with your own fast paths; repeatable"),
    ] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="write one HTML page with plots and tables")] = None,
    perfetto: Annotated[
        Path | None, typer.Option(metavar="FILE", help="write the trace with hotspots and gaps as tracks, for Perfetto")
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="print Markdown tables")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object with all figures")] = False,
) -> None:
    """Rank the GPU work of a trace. Show the known fast path that covers each hotspot, and the time it would save.

    Status: `covered, off`: a fast path exists but does not run; `covered, on`: it runs; `partly`: it covers a part of
    the calls, or a faster kernel exists; `in flight`: only unfinished upstream work covers it; `new`: no fast path is
    known.
    """
    from kernwright.core.errors import KernwrightError
    from kernwright.diagnose.catalogue.catalogue import shipped_catalogue
    from kernwright.diagnose.hotspots.ranking import diagnose
    from kernwright.diagnose.recording import read_recording

    if markdown and as_json:
        raise KernwrightError("--markdown and --json exclude each other", "choose one of them")
    least_share = percent_given(least)
    for written in (html, perfetto):
        if written is not None:
            refuse_unwritable(written)
    known = shipped_catalogue(catalogue or ())
    diagnosis = diagnose(read_recording(trace), known)
    if html is not None:
        from kernwright.report.diagnosis.page import write_diagnosis

        write_diagnosis(diagnosis, html, f"Hotspots of {trace.name}", least_share)
        say(f"kernwright: page in {html}", err=True)
    if perfetto is not None:
        from kernwright.diagnose.perfetto.annotated_trace import write_annotated

        write_annotated(diagnosis, perfetto)
        say(f"kernwright: trace in {perfetto}; open it on https://ui.perfetto.dev", err=True)
    show_diagnosis(diagnosis, least_share, markdown=markdown, as_json=as_json)


def percent_given(text: str) -> float:
    """Return `1%`, `1` or `0.5 %` as a share."""
    from kernwright.core.errors import KernwrightError

    try:
        value = float(text.removesuffix("%").strip())
    except ValueError:
        value = -1.0
    if not 0 <= value <= 100:
        raise KernwrightError(
            f"--least must be a percentage between 0 and 100, got {text}", "write it as in --least 1%"
        )
    return value / 100


def show_diagnosis(diagnosis: Diagnosis, least_share: float, *, markdown: bool = False, as_json: bool = False) -> None:
    """Print a diagnosis."""
    import json

    from kernwright.cli.models.text_tables import print_markdown, print_text
    from kernwright.diagnose.hotspots.as_json import as_json as record
    from kernwright.diagnose.hotspots.tables import tables_of_diagnosis

    if as_json:
        say(json.dumps(record(diagnosis), indent=1))
        return
    print_tables = print_markdown if markdown else print_text
    print_tables(_lines(diagnosis), tables_of_diagnosis(diagnosis, least_share))
    for line in _next_steps(diagnosis):
        say(line)


def _lines(diagnosis: Diagnosis) -> list[str]:
    device = f" on {diagnosis.device}" if diagnosis.device else ""
    expected, low, high = diagnosis.saving_us
    statuses = ", ".join(f"{name} {share:.1%}" for name, share in diagnosis.status_shares.items())
    work = f"{diagnosis.gpu_us / 1e3:.3f} ms of GPU work{diagnosis.extent}"
    lines = [
        f"{diagnosis.trace.path.name}{device}: {work}: {statuses}",
        f"known fast paths that are off would save {expected / 1e3:.3f} ms of it, "
        f"{expected / (diagnosis.gpu_us or 1.0):.1%} ({low / 1e3:.3f} to {high / 1e3:.3f} ms)",
    ]
    for cause in diagnosis.idle:
        lines.append(f"idle: {cause.sentence}")
        if cause.advice:
            lines.append(f"  what usually helps: {cause.advice}")
    return [*lines, *(f"note: {note}" for note in diagnosis.notes)]


def _next_steps(diagnosis: Diagnosis) -> list[str]:
    new = [hotspot for hotspot in diagnosis.with_status("new") if hotspot.share >= WORTH_A_TASK]
    if not new:
        return []
    lines = ["\nNew hotspots over 1 %, for a task of their own:"]
    return lines + [
        f"  kernwright task new NAME --from-hotspot {diagnosis.trace.path}:{hotspot.rank}   # {hotspot.name}"
        for hotspot in new
    ]
