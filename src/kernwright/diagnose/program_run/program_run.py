"""ProgramRun: a program as a benchmark, from the preflight to the filed perf dump."""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernwright.core.errors import KernwrightError
from kernwright.core.runtime_interface import STRICT_VARIABLE
from kernwright.diagnose.doctor.preflight import Preflight, preflight
from kernwright.diagnose.perf_dump.dump import PROFILER_OPTIONS, PerfDump
from kernwright.diagnose.perf_dump.dump_files import dump_path, file_dump
from kernwright.diagnose.perf_dump.provenance import RunProvenance
from kernwright.diagnose.presets.catalog import find_preset
from kernwright.diagnose.program_run.command_options import is_sglang_generate, wanted_gpus, workload_of
from kernwright.diagnose.program_run.dump_file import DumpFile, with_dump
from kernwright.diagnose.program_run.engine_command import ENGINES, EngineOptions, as_shell, sglang_command
from kernwright.diagnose.program_run.environment import (
    AS_IT_COMES,
    SYNCHRONISED,
    added_variables,
    is_on,
)
from kernwright.diagnose.program_run.kernel_census import census_of
from kernwright.diagnose.program_run.native_gate import SGLANG_SIGNS, STRICT_SIGNS
from kernwright.diagnose.program_run.program_python import folder_name, program_libraries
from kernwright.diagnose.program_run.watched_program import ProgramEnding, run_watched

UNNAMED = "unnamed"  # the folder of dumps without a label


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """A program to run.

    Attributes:
        label: name under which the perf dump is filed; without one, only a dump that the program writes is filed.
        preset: name of the preset, or "" for a command of the user.
        variables: variables that the run needs; those of the user's environment come first.
        gpus: number of idle GPUs; None: as many as the command asks for, or one.
        workload, settings: what the run computes and how, for its provenance.
        problems: what this machine lacks. If there is a problem, the run is refused.
        expected_kernels: regular expressions; the trace of the run must have a kernel of each.
        trace: where the program writes its trace; None: where sglang does.
    """

    command: Sequence[str]
    label: str = ""
    preset: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    gpus: int | None = None
    allow_busy: bool = False
    offline: bool = False
    strict: bool = False
    workload: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    problems: Sequence[KernwrightError] = ()
    expected_kernels: Sequence[str] = ()
    trace: Path | None = None


@dataclass(frozen=True, kw_only=True)
class RunOutcome:
    """The results of a run.

    Attributes:
        filed: the perf dump's file, or None.
        problem: reason for a missing perf dump of a program that succeeded, such as a kernel that it did not launch.
        disturbances: other processes on the run's GPUs when it ended.
    """

    ending: ProgramEnding
    dump: PerfDump | None = None
    filed: Path | None = None
    problem: KernwrightError | None = None
    disturbances: Sequence[str] = ()


def request_of_preset(name_or_path: str, engine: str, options: EngineOptions, label: str) -> RunRequest:
    """Return the request for an engine that runs a preset."""
    if engine not in ENGINES:
        raise KernwrightError(
            f"--engine {engine} is not known", f"use {', '.join(ENGINES)}; `kernwright denoise` runs diffusers"
        )
    name, preset = find_preset(name_or_path)
    composed = sglang_command(name, preset, options, "-".join(filter(None, (name, label))))
    return RunRequest(
        command=composed.words,
        label=label,
        preset=name,
        variables=composed.environment,
        offline=composed.offline,
        workload=composed.workload,
        settings=composed.settings,
        problems=composed.problems,
    )


def request_of_program(options: EngineOptions, label: str) -> RunRequest:
    """Return the request for the program in `options.extra`. Options of an engine are refused."""
    of_engine = {
        "--torch-compile": options.torch_compile,
        "--transformer-path": options.transformer_path,
        "--model-path": options.model_path,
        "--prompt-path": options.prompt_path,
        "--image-path": options.image_path,
    }
    if wrong := [option for option, value in of_engine.items() if value]:
        raise KernwrightError(f"{wrong[0]} needs --preset", "give it to the program itself, after its name")
    if not options.extra:
        raise KernwrightError("no program is given", "write it after --: kernwright run -- sglang generate ...")
    return RunRequest(command=options.extra, label=label, offline=options.offline)


def shown_command(request: RunRequest) -> str:
    """Return the command with its variables, for a shell. It writes its perf dump to the folder of the label."""
    place = dump_path(request.preset or folder_name(request.command), request.label or UNNAMED)
    command, _ = with_dump(request.command, place)
    needed = added_variables({}, request.variables, request.offline, request.strict)
    return as_shell(command, {name: os.environ.get(name, value) for name, value in needed.items()})


def ready_run(request: RunRequest) -> tuple[Preflight, dict[str, str]]:
    """Return the preflight of a run, and the environment of its program.

    Raises:
        EnvironmentProblem: the machine or the program is not fit for the run.
    """
    if request.problems:
        raise request.problems[0]
    if request.label:
        dump_path("preset", request.label)  # refuses a label that cannot name a folder
    added = added_variables(os.environ, request.variables, request.offline, request.strict)
    environment = AS_IT_COMES | os.environ | added
    ready = preflight(
        wanted_gpus(request.command) if request.gpus is None else request.gpus,
        environment=environment,
        allow_busy=request.allow_busy,
        anywhere=request.gpus is None,
    )
    return ready, environment | dict(ready.environment)


def run_program(request: RunRequest) -> RunOutcome:
    """Run a program under the native gate, and file its perf dump if it succeeded.

    Raises:
        EnvironmentProblem: the machine or the program is not fit for the run. Nothing was started.
    """
    ready, environment = ready_run(request)
    is_strict = is_on(environment, STRICT_VARIABLE)
    census = census_of(request.expected_kernels, request.trace, request.command, environment)
    with tempfile.TemporaryDirectory(prefix="kernwright-run-") as scratch:
        command, file = with_dump(request.command, Path(scratch, "perf.json"))
        ending = run_watched(command, environment, SGLANG_SIGNS + (STRICT_SIGNS if is_strict else ()))
        if ending.sign or ending.interrupted or ending.status:
            if file is not None:
                file.discard()
            return RunOutcome(ending=ending)
        disturbances = ready.disturbances()
        try:
            if census is not None:
                census.check()
            dump = _dump(request, file, ending)
            if dump is None:
                return RunOutcome(ending=ending, disturbances=disturbances)
            if dump.kernwright is None:
                dump.kernwright = _provenance(request, command, environment, ready, disturbances)
            elif request.label:
                dump.kernwright.label = request.label
            filed = file_dump(dump)
        except KernwrightError as error:
            if file is not None:
                file.discard()
            return RunOutcome(ending=ending, problem=error, disturbances=disturbances)
    return RunOutcome(ending=ending, dump=dump, filed=filed, disturbances=disturbances)


def _dump(request: RunRequest, file: DumpFile | None, ending: ProgramEnding) -> PerfDump | None:
    """Return the program's dump; for a program without one, the time from its start to its end if it has a label."""
    if file is not None:
        return file.read()
    if not request.label:
        return None
    return PerfDump(tag="wall_time", total_duration_ms=ending.seconds * 1e3, meta={"measured": "the whole process"})


def _provenance(
    request: RunRequest,
    command: Sequence[str],
    environment: Mapping[str, str],
    ready: Preflight,
    disturbances: Sequence[str],
) -> RunProvenance:
    of_sglang = is_sglang_generate(command)
    stated = workload_of(command) if of_sglang else {"program": shlex.join(request.command)}
    options = {word.partition("=")[0] for word in command}
    return RunProvenance(
        label=request.label,
        preset=request.preset or folder_name(command),
        workload=dict(request.workload) or stated,
        settings=dict(request.settings),
        command=shlex.join(command),
        libraries=program_libraries(command, environment),
        gpus=ready.gpu_names,
        machine=ready.record() | {"disturbances": list(disturbances)},
        profiled=not options.isdisjoint(PROFILER_OPTIONS),
        synchronised=not of_sglang or is_on(environment, SYNCHRONISED),
    )
