"""kernwright profile: where the GPU time of a recorded run goes, and why the GPU is idle."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernwright.cli.output import say

if TYPE_CHECKING:
    from kernwright.diagnose.profile.profile import Profile


def profile(
    trace: Annotated[Path, typer.Argument(metavar="TRACE", help="Chrome trace of torch.profiler, plain or gzip")],
    mapping: Annotated[
        Path | None,
        typer.Option(
            metavar="TRACE", help="trace of the same program without CUDA graphs, to find the code behind each kernel"
        ),
    ] = None,
    step: Annotated[
        str | None, typer.Option(metavar="NAME", help="steps that the tables cover, such as decode; default: all")
    ] = None,
    least: Annotated[
        float, typer.Option(metavar="PERCENT", min=0, max=100, help="least share of a kernel that is listed")
    ] = 1.0,
    markdown: Annotated[bool, typer.Option("--markdown", help="print Markdown tables")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object with all figures")] = False,
) -> None:
    """Show where the GPU time of a recorded run goes: kernels, categories, gaps and what the GPU waited for.

    Steps are told apart by the names in the trace, or by the repetition of their kernels. Warm-up is left out.
    """
    from kernwright.core.errors import KernwrightError
    from kernwright.diagnose.profile.profile import profile_of
    from kernwright.diagnose.trace.trace import read_trace

    if markdown and as_json:
        raise KernwrightError("--markdown and --json exclude each other", "choose one of them")
    found = profile_of(read_trace(trace), read_trace(mapping) if mapping else None, step)
    show(found, least / 100, markdown=markdown, as_json=as_json)


def show(found: Profile, least_share: float, *, markdown: bool = False, as_json: bool = False) -> None:
    """Print a profile."""
    import json

    from kernwright.diagnose.profile import as_json as record
    from kernwright.diagnose.profile.tables import tables_of

    if as_json:
        say(json.dumps(record.as_json(found), indent=1))
        return
    device = f" on {found.trace.device_name}" if found.trace.device_name else ""
    lines = [f"{found.trace.path.name}{device}: {found.us / 1000:.3f} ms of GPU work"]
    lines += [f"note: {note}" for note in found.notes]
    tables = tables_of(found, least_share)
    if markdown:
        from kernwright.cli.models.text_tables import print_markdown

        print_markdown(lines, tables)
    else:
        from kernwright.cli.models.text_tables import print_text

        print_text(lines, tables)
