"""kernwright run: a program as a benchmark, with the native gate, a perf dump and its provenance."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernwright.cli.arguments import complete_presets
from kernwright.cli.models.program_end import end_like_program, tell
from kernwright.cli.output import say

if TYPE_CHECKING:
    from kernwright.diagnose.perf_dump.dump import PerfDump
    from kernwright.diagnose.program_run.program_run import RunOutcome, RunRequest

VOID = 1  # exit status if the program succeeded without its perf dump or without an expected kernel


# The options of the command

Program = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="-- PROGRAM [ARGS]...",
        help="program to run, with its arguments; with --preset, further arguments of the engine",
    ),
]
Preset = Annotated[
    str | None,
    typer.Option(help="preset or preset file to run instead of a program", autocompletion=complete_presets),
]
Engine = Annotated[str, typer.Option(help="engine of --preset")]
TorchCompile = Annotated[bool, typer.Option(help="with --preset: compile the model, or run it in eager mode")]
TransformerPath = Annotated[
    str | None,
    typer.Option(metavar="DIR", help="with --preset: other weights of the transformer, such as quantized ones"),
]
ModelPath = Annotated[str | None, typer.Option(metavar="DIR", help="with --preset: local weights; forbids downloads")]
PromptPath = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="with --preset: file with the prompt; the output file is named PRESET-LABEL"),
]
ImagePath = Annotated[Path | None, typer.Option(metavar="FILE", help="with --preset: input image")]
Swaps = Annotated[
    list[str] | None,
    typer.Option(
        metavar="MODULE:FUNCTION=CANDIDATE",
        help="replace a function by ops.NAME, a candidate folder or FILE.py:FUNCTION; repeatable",
    ),
]
Turns = Annotated[
    int,
    typer.Option(help="with --swap: number of timed runs with the swap, and as many without it, in turns; 0: none"),
]
Label = Annotated[
    str,
    typer.Option(help="label of the perf dump, for `kernwright compare`; default with --swap: the candidate's name"),
]
Gpus = Annotated[int | None, typer.Option(min=0, help="number of idle GPUs; default: as the command requests, or one")]
AllowBusy = Annotated[bool, typer.Option("--allow-busy", help="also accept GPUs that other processes use")]
Offline = Annotated[bool, typer.Option("--offline", help="forbid downloads of models")]
Strict = Annotated[
    bool, typer.Option("--strict", help="stop the program if an op of Kernwright falls back to its reference")
]
ExpectedKernels = Annotated[
    list[str] | None,
    typer.Option(
        metavar="REGEX", help="kernel that the trace of the run must contain; otherwise the run is void; repeatable"
    ),
]
TraceFile = Annotated[
    Path | None, typer.Option(help="trace that the program writes, or its folder; default: sglang's folder")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="print the command and run nothing")]


def run(
    command: Program = None,
    preset: Preset = None,
    engine: Engine = "sglang",
    torch_compile: TorchCompile = False,
    transformer_path: TransformerPath = None,
    model_path: ModelPath = None,
    prompt_path: PromptPath = None,
    image_path: ImagePath = None,
    swap: Swaps = None,
    turns: Turns = 0,
    label: Label = "",
    gpus: Gpus = None,
    allow_busy: AllowBusy = False,
    offline: Offline = False,
    strict: Strict = False,
    expect_kernel: ExpectedKernels = None,
    trace: TraceFile = None,
    dry_run: DryRun = False,
) -> None:
    """Run a program as a benchmark. Stop it if its output says that it does not use the native backend.

    First the machine is checked and idle GPUs are pinned. Afterwards the perf dump is filed with its provenance.

    --preset runs an engine instead of a program. --swap replaces a function by a candidate. Calls that the candidate
    does not cover go to the original. Results of some other calls are compared with the original. The candidate runs in
    the program's own process, so the result is not a verdict.

    Exit status: that of the program. It is 1 if the native gate stopped the program, if the perf dump or an expected
    kernel is missing, or if a swap failed: the function was not found or never called, no call was covered, or results
    differ.
    """
    from dataclasses import replace

    from kernwright.core.errors import KernwrightError
    from kernwright.diagnose.program_run.engine_command import EngineOptions
    from kernwright.diagnose.program_run.program_run import (
        request_of_preset,
        request_of_program,
        run_program,
        shown_command,
    )

    options = EngineOptions(
        torch_compile=torch_compile,
        transformer_path=transformer_path,
        model_path=model_path,
        prompt_path=prompt_path,
        image_path=image_path,
        offline=offline,
        extra=command or (),
    )
    if preset is not None:
        request = request_of_preset(preset, engine, options, label)
    else:
        request = request_of_program(options, label)
    request = replace(
        request,
        gpus=gpus,
        allow_busy=allow_busy,
        strict=strict,
        expected_kernels=expect_kernel or (),
        trace=trace,
    )
    if expect_kernel and swap:
        raise KernwrightError(
            "--expect-kernel cannot be combined with --swap", "look for the kernel in a run of its own"
        )
    if turns and not swap:
        raise KernwrightError("--turns needs --swap", "name a function and its candidate with --swap")
    if dry_run:
        for problem in request.problems:
            tell(f"not ready: {problem}")
        say(shown_command(request))
    elif swap:
        _swap(request, swap, turns)
    else:
        _finish(run_program(request))


def _swap(request: RunRequest, swaps: list[str], turns: int) -> None:
    """Run a program with functions replaced, in the environment of any other run."""
    import os

    from kernwright.cli.models.swap import run_swapped
    from kernwright.diagnose.program_run.program_run import ready_run

    ready, environment = ready_run(request)
    os.environ.update(environment)
    run_swapped(request.command, swaps, turns, request.label or None, ready)


def _finish(outcome: RunOutcome) -> None:
    """Print the outcome of the run, and exit with the status of the program."""
    from kernwright.capture.program import end_like

    ending = outcome.ending
    if ending.left_running:
        tell(f"the program left {ending.left_running} process(es) running; they were ended")
    for users in outcome.disturbances:
        tell(f"the GPU was not alone at the end of the run: {users}")
    if outcome.filed is not None and outcome.dump is not None:
        tell(f"perf dump: {outcome.filed}: {_times(outcome.dump)}")
    if outcome.problem is not None:
        tell(str(outcome.problem))
        end_like(VOID)
    end_like_program(ending)


def _times(dump: PerfDump) -> str:
    parts = [("end to end", dump.end_to_end_ms), ("denoise", dump.denoise_ms)]
    shown = [f"{name} {taken / 1e3:.3f} s" for name, taken in parts if taken is not None]
    peak = dump.peak_memory_mb
    return ", ".join([*shown, *([f"peak {peak / 1024:.1f} GiB"] if peak else [])])
