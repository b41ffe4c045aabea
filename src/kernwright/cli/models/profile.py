"""kernwright profile: the GPU time of a recorded run, and the causes of idle time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernwright.cli.arguments import complete_presets
from kernwright.cli.output import refuse_unwritable, say

if TYPE_CHECKING:
    from kernwright.diagnose.profile.profile import Profile

STDERR = 2  # output of programs; standard output has only results


def profile(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="TRACE | PRESET [-- OPTIONS] | --nsys -- PROGRAM",
            help="Chrome trace of torch.profiler, SQLite export of nsys, or nsys report; a preset, with options of "
            "`kernwright denoise` for its run; or the program to profile",
            autocompletion=complete_presets,
        ),
    ],
    mapping: Annotated[
        Path | None,
        typer.Option(
            metavar="TRACE",
            help="trace of the same program without CUDA graphs, which tells the code that launches each kernel",
        ),
    ] = None,
    step: Annotated[
        str | None, typer.Option(metavar="NAME", help="name of the steps in the tables, such as decode; default: all")
    ] = None,
    least: Annotated[
        float, typer.Option(metavar="PERCENT", min=0, max=100, help="list kernels from this share of the time")
    ] = 1.0,
    nsys: Annotated[bool, typer.Option("--nsys", help="run a program under nsys and profile it")] = False,
    out: Annotated[
        Path,
        typer.Option(help="path without suffix of the files that a preset or --nsys writes"),
    ] = Path("kernwright-profile"),
    delay: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=0, help="time before nsys starts to record")
    ] = None,
    duration: Annotated[float | None, typer.Option(metavar="SECONDS", min=0, help="time that nsys records")] = None,
    elapsed: Annotated[
        bool, typer.Option("--elapsed", help="run the program of --nsys again without nsys, and print its time")
    ] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="print Markdown tables")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object with all figures")] = False,
) -> None:
    """Show how a recorded run spends its GPU time: kernels, categories, gaps and their causes.

    Steps are found by the names in the trace, or by the repetition of kernels. Warm-up is left out. A preset is first
    recorded with `kernwright denoise --profile`. The output of a recorded program goes to standard error.
    """
    from kernwright.core.errors import KernwrightError
    from kernwright.diagnose.profile.profile import profile_of
    from kernwright.diagnose.recording import read_recording

    if markdown and as_json:
        raise KernwrightError("--markdown and --json exclude each other", "choose one of them")
    if not nsys and (elapsed or delay is not None or duration is not None):
        raise KernwrightError("--elapsed, --delay and --duration need --nsys", "add --nsys, or leave them out")
    trace, seconds = Path(what[0]), None
    if nsys:
        trace, seconds = _collected(what, out, delay, duration, elapsed)
    elif _is_preset(what[0]):
        trace = _denoised(what, out)
    elif len(what) > 1:
        raise KernwrightError(f"only one trace can be profiled, got {len(what)}", "to run a program, add --nsys")
    found = profile_of(read_recording(trace), read_recording(mapping) if mapping else None, step)
    show(found, least / 100, seconds, markdown=markdown, as_json=as_json)


def _is_preset(name: str) -> bool:
    """Return whether a name is a preset. Raises KernwrightError if it is neither a preset nor a file."""
    from kernwright.core.errors import KernwrightError, did_you_mean
    from kernwright.diagnose.presets.catalog import list_presets

    if Path(name).exists():
        return Path(name).suffix == ".toml"
    presets = list_presets()
    if name not in presets and Path(name).name == name and not Path(name).suffix:
        otherwise = "name a trace, or a preset of `kernwright denoise --list`"
        raise KernwrightError(f"{name} is neither a file nor a preset", did_you_mean(name, presets, otherwise))
    return name in presets


def _denoised(words: list[str], out: Path) -> Path:
    """Run the denoise benchmark of a preset under torch.profiler. Return the path of the trace.

    Args:
        words: the preset, and options of `kernwright denoise`.
    """
    import subprocess
    import sys

    from kernwright.cli.models.denoise import trace_path
    from kernwright.core.errors import KernwrightError

    dump = out.with_name(f"{out.name}.json")
    refuse_unwritable(dump)
    command = [sys.executable, "-m", "kernwright", "denoise", *words, "--profile", "--perf-dump", str(dump)]
    status = subprocess.run(command, stdout=STDERR, check=False).returncode
    if status:
        raise KernwrightError(
            f"kernwright denoise {' '.join(words)} ended with status {status}", "see its output above"
        )
    return trace_path(dump)


def _collected(
    program: list[str], out: Path, delay: float | None, duration: float | None, elapsed: bool
) -> tuple[Path, float | None]:
    """Profile a program with nsys. Return the export and, on request, the time of the program without nsys."""
    from kernwright.diagnose.nsys.collect import collect, elapsed_seconds, nsys_program, profile_command

    refuse_unwritable(out)
    say(f"kernwright: {' '.join(profile_command(nsys_program(), out, program, delay, duration))}", err=True)
    export = collect(program, out, delay, duration)
    return export, elapsed_seconds(program) if elapsed else None


def show(
    found: Profile,
    least_share: float,
    seconds: float | None = None,
    *,
    markdown: bool = False,
    as_json: bool = False,
) -> None:
    """Print a profile.

    Args:
        seconds: the time of the program without a profiler, if it was measured.
    """
    import json

    from kernwright.diagnose.profile import as_json as record
    from kernwright.diagnose.profile.tables import tables_of

    if as_json:
        say(json.dumps(record.as_json(found) | ({} if seconds is None else {"elapsed_s": seconds}), indent=1))
        return
    device = f" on {found.trace.device_name}" if found.trace.device_name else ""
    lines = [f"{found.trace.path.name}{device}: {found.us / 1000:.3f} ms of GPU work"]
    if seconds is not None:
        busy = max(each.busy_us for each in found.devices) / 1e6
        lines.append(f"without nsys the program takes {seconds:.2f} s; the GPU is busy for {busy:.2f} s of it")
    lines += [f"note: {note}" for note in found.notes]
    tables = tables_of(found, least_share)
    if markdown:
        from kernwright.cli.models.text_tables import print_markdown

        print_markdown(lines, tables)
    else:
        from kernwright.cli.models.text_tables import print_text

        print_text(lines, tables)
