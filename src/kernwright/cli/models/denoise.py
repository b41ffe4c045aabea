"""kernwright denoise: time a diffusion model stage by stage, and write a perf dump."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernwright.cli.arguments import complete_presets
from kernwright.cli.output import refuse_unwritable, say

if TYPE_CHECKING:
    from kernwright.diagnose.denoise.benchmark import DenoiseRequest, DenoiseResult

PROFILED_STEPS = 5  # steps that --profile records, unless --steps says otherwise


def denoise(
    preset: Annotated[
        str | None,
        typer.Argument(help="name of a preset, or path of a .toml file", autocompletion=complete_presets),
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="list the presets")] = False,
    layers: Annotated[
        str | None, typer.Option(metavar="N", help="number of transformer layers, such as 12, or 4+8 for two kinds")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="number of denoising steps; with --profile, of recorded steps")
    ] = None,
    compile: Annotated[
        str, typer.Option(metavar="MODE", help="off, regional (repeated blocks), full, or max-autotune")
    ] = "off",
    profile: Annotated[
        bool, typer.Option("--profile", help="record a Chrome trace beside the dump; `compare` refuses such a run")
    ] = False,
    weights: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="folder of weights in the format of diffusers; default: random weights"),
    ] = None,
    label: Annotated[str, typer.Option(metavar="NAME", help="label under which the dumps are filed")] = "unnamed",
    perf_dump: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="write the dump to this file; default: a file under preset and label"),
    ] = None,
    repeat: Annotated[int, typer.Option(metavar="N", help="number of runs; each has its own dump")] = 1,
    warmup: Annotated[
        int,
        typer.Option(metavar="N", help="denoising steps of the warm-up, a run that is not counted; 0: none"),
    ] = 2,
    tiny: Annotated[bool, typer.Option("--tiny", help="small version of the model; a CPU runs it in seconds")] = False,
    allow_busy: Annotated[
        bool, typer.Option("--allow-busy", help="also accept a GPU that other processes use")
    ] = False,
    device: Annotated[str | None, typer.Option(help="cuda or cpu; default: cuda, and cpu with --tiny")] = None,
) -> None:
    """Time a diffusion model with diffusers, from the prompt to the decoded output.

    The model has its published widths. Without --weights, the weights are random: the image is noise, but the times are
    realistic. Nothing is downloaded. `kernwright compare` compares the dumps.
    """
    if listing:
        _list()
        return
    from kernwright.core.errors import KernwrightError

    if preset is None:
        raise KernwrightError("no preset is given", "name one; `kernwright denoise --list` shows all")
    for option, number, least in (("--repeat", repeat, 1), ("--warmup", warmup, 0), ("--steps", steps, 1)):
        if number is not None and number < least:
            raise KernwrightError(f"{option} must be at least {least}, got {number}", f"give {least} or more")
    if profile and repeat > 1:
        raise KernwrightError("--profile and --repeat exclude each other", "leave one of them out")
    request = _request(
        preset, layers=layers, steps=steps, compile=compile, profile=profile, weights=weights, label=label,
        warmup=warmup, tiny=tiny, device=device, allow_busy=allow_busy,
    )  # fmt: skip
    _run(request, _paths(request, perf_dump, repeat))


def _list() -> None:
    from kernwright.cli.columns import print_columns
    from kernwright.diagnose.presets.catalog import list_presets, load_preset

    rows: list[tuple[list[str], list[str]]] = []
    for name, path in list_presets().items():
        found = load_preset(path)
        gpus = str(found.sglang.gpus) if found.sglang else ""
        rows.append(([name, str(found.request.steps), gpus], [found.title, found.model]))
    print_columns(["preset", "steps", "GPUs of sglang", "model"], rows, numbers=("steps", "GPUs of sglang"))


def _request(
    preset: str, *, layers: str | None, steps: int | None, compile: str, profile: bool, weights: Path | None,
    label: str, warmup: int, tiny: bool, device: str | None, allow_busy: bool,
) -> DenoiseRequest:  # fmt: skip
    from kernwright.core.errors import KernwrightError, did_you_mean
    from kernwright.diagnose.denoise.benchmark import DenoiseRequest
    from kernwright.diagnose.denoise.compilation import COMPILE_MODES
    from kernwright.diagnose.perf_dump.dump_files import dump_path
    from kernwright.diagnose.presets.catalog import find_preset

    mode = next((each for each in COMPILE_MODES if each == compile), None)
    if mode is None:
        known = f"choose {', '.join(COMPILE_MODES)}"
        raise KernwrightError(f"--compile {compile} is not a mode", did_you_mean(compile, COMPILE_MODES, known))
    if weights is not None and not weights.is_dir():
        raise KernwrightError(f"--weights {weights} is not a folder", "name a folder in the format of diffusers")
    chosen = device or ("cpu" if tiny else "cuda")
    if chosen not in ("cpu", "cuda"):
        raise KernwrightError(f"--device {chosen} is unknown", "choose cuda or cpu")
    name, found = find_preset(preset)
    dump_path(name, label)  # refuses a label that cannot name a folder, before the work starts
    recorded = steps or min(PROFILED_STEPS, found.request.steps)
    return DenoiseRequest(
        name=name,
        preset=found,
        device=chosen,
        label=label,
        layers=layers,
        steps=recorded + 1 if profile else steps,
        compile=mode,
        weights=weights,
        tiny=tiny,
        warmup=warmup,
        profiled_steps=recorded if profile else None,
        preflight=_check_machine(chosen, allow_busy),
    )


def _check_machine(device: str, allow_busy: bool) -> dict[str, Any]:
    """Return the doctor's report. On CUDA, an idle GPU is chosen and pinned for this process."""
    from kernwright.core.errors import EnvironmentProblem
    from kernwright.diagnose.doctor.preflight import preflight

    found = preflight(0 if device == "cpu" else None, allow_busy=allow_busy)
    found.pin()  # before torch looks for devices
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        raise EnvironmentProblem(
            "torch finds no CUDA device", "try the small version on this machine: add --tiny (or --device cpu)"
        )
    return found.record()


def _paths(request: DenoiseRequest, file: Path | None, repeat: int) -> list[Path]:
    """Return the files of the dumps."""
    from kernwright.diagnose.perf_dump.dump_files import dump_path

    if file is None:
        return [dump_path(request.name, request.label) for _ in range(repeat)]
    refuse_unwritable(file)
    if repeat == 1:
        return [file]
    return [file.with_name(f"{file.stem}-{number}{file.suffix}") for number in range(1, repeat + 1)]


def _run(request: DenoiseRequest, paths: list[Path]) -> None:
    from kernwright.cli.console import ProgressBar
    from kernwright.diagnose.denoise.benchmark import DenoiseBenchmark
    from kernwright.diagnose.perf_dump.dump_files import write_dump

    results = []
    with ProgressBar("steps") as bar:
        benchmark = DenoiseBenchmark(request, bar.steps_of)
        benchmark.prepare()
        for path in paths:
            result = benchmark.run()
            if result.profile is not None:
                result.profile.write(trace_path(path))
            write_dump(path, result.dump)
            results.append(result)
    for path, result in zip(paths, results, strict=True):
        _show(result, path)


def trace_path(dump: Path) -> Path:
    """Return the path of a trace: beside the dump of its run."""
    return dump.with_name(f"{dump.stem}.trace.json.gz")


def _show(result: DenoiseResult, path: Path) -> None:
    from statistics import median

    dump = result.dump
    steps = [step.duration_ms for step in dump.denoise_steps_ms]
    for name, taken in dump.stage_totals.items():
        say(f"{name:24} {taken:12.1f} ms")
    say(f"{'end to end':24} {dump.total_duration_ms or 0:12.1f} ms")
    if steps:
        say(f"{'denoising step, median':24} {median(steps):12.1f} ms of {len(steps)}")
    if dump.peak_memory_mb is not None:
        say(f"{'peak memory':24} {dump.peak_memory_mb:12.1f} MB")
    if broken := [name for name, finite in result.finite.items() if not finite]:
        say(f"warning: NaN or infinity in: {', '.join(broken)}", err=True)
    if result.profile is not None:
        say(f"trace {trace_path(path)}; its times include the profiler")
    say(f"dump {path}")
