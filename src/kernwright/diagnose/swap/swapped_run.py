"""SwappedRun: runs of a program with and without swaps, each with its perf dump."""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernwright.capture.hook import PLAN
from kernwright.capture.program import environment, program_name
from kernwright.capture.target import file_in
from kernwright.core.errors import KernwrightError
from kernwright.diagnose.doctor.preflight import Preflight
from kernwright.diagnose.perf_dump.dump import PerfDump
from kernwright.diagnose.perf_dump.dump_files import file_dump, read_dump
from kernwright.diagnose.perf_dump.provenance import RunProvenance, library_versions
from kernwright.diagnose.program_run.watched_program import ProgramEnding, run_watched
from kernwright.diagnose.swap.swap import Swap
from kernwright.diagnose.swap.swap_report import SwapReport, read_report

BASE = "base"  # label of runs without swaps
DUMP_OPTIONS = ("--perf-dump-path", "--perf-dump")  # options of sglang and of kernwright denoise
DUMPS = "KERNWRIGHT_DUMPS"
FOLLOWER = "kernwright.diagnose.swap.target_replacer:TargetReplacer"


@dataclass(frozen=True, kw_only=True)
class ProgramRun:
    """One run: the end of the program, its perf dump and, if functions were replaced, the outcomes of the swaps."""

    ending: ProgramEnding
    dump: PerfDump
    report: SwapReport | None = None

    @property
    def is_good(self) -> bool:
        failed = self.ending.status or self.ending.sign or self.ending.interrupted
        return not failed and not (self.report and self.report.failures)


def run_program(
    command: Sequence[str],
    swaps: Sequence[Swap],
    checks: bool = True,
    active: bool = True,
    ready: Preflight | None = None,
) -> ProgramRun:
    """Run a program once.

    Args:
        checks: whether a sample of calls is compared with the original.
        active: False for a run in which the functions are found, but not replaced.
        ready: the facts about the machine that are recorded.
    """
    folder = Path(tempfile.mkdtemp(prefix="kernwright-swap-"))
    try:
        dumps = folder / "dumps"
        dumps.mkdir()
        _write_plan(folder, swaps, checks, active)
        began = time.time()
        ending = run_watched(command, {**environment(folder), DUMPS: str(dumps)})
        report = read_report(folder, swaps) if active else None
        dump = _collected(command, dumps, began) or _wall_time(ending, report)
        return ProgramRun(ending=ending, dump=_described(dump, command, report, ready), report=report)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def take_turns(
    command: Sequence[str], swaps: Sequence[Swap], turns: int, label: str, ready: Preflight | None = None
) -> Iterator[tuple[str, ProgramRun]]:
    """Yield the runs of a program without and with swaps, in turns, each with its label. Calls are not compared.

    The order is mirrored from turn to turn, so that drift that is linear in time cancels.
    """
    series = secrets.token_hex(6)
    for turn in range(turns):
        for name in (BASE, label) if turn % 2 == 0 else (label, BASE):
            run = run_program(command, swaps, checks=False, active=name != BASE, ready=ready)
            yield name, _labelled(run, name, series, turn)


def file_run(run: ProgramRun, label: str) -> Path:
    """Write the perf dump of a run to the folder of its label. Return the path."""
    return file_dump(_labelled(run, label).dump)


def check_label(label: str) -> None:
    if label == BASE or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]*", label):
        raise KernwrightError(
            f"--label {label!r} cannot be used", f"use letters, digits, dots and dashes; {BASE} is that of the program"
        )


def _write_plan(folder: Path, swaps: Sequence[Swap], checks: bool, active: bool) -> None:
    plan = {
        "targets": [swap.target for swap in swaps],
        "files": {swap.target: str(Path(file).resolve()) for swap in swaps if (file := file_in(swap.target))},
        "follower": FOLLOWER,
        "home": str(Path(__file__).resolve().parents[3]),
        "swaps": [swap.as_plan() for swap in swaps],
        "checks": checks,
        "active": active,
    }
    (folder / PLAN).write_text(json.dumps(plan), encoding="utf-8")


def _collected(command: Sequence[str], folder: Path, began: float) -> PerfDump | None:
    """Return the perf dump that the program wrote, if any: the newest, where there are several."""
    found = list(folder.rglob("*.json"))
    for place, word in enumerate(command):
        option, equals, value = word.partition("=")
        if option in DUMP_OPTIONS:
            named = Path(value if equals else (*command[place + 1 :], "")[0])
            if named.is_file() and named.stat().st_mtime >= began - 1:
                found.append(named)
    return read_dump(max(found, key=lambda path: path.stat().st_mtime)) if found else None


def _wall_time(ending: ProgramEnding, report: SwapReport | None) -> PerfDump:
    """Return the dump of a program that wrote none: its time from start to end, without comparisons."""
    extra = report.extra_ms if report is not None else 0.0
    return PerfDump(tag="wall_time", total_duration_ms=max(0.0, 1e3 * ending.seconds - extra))


def _described(dump: PerfDump, command: Sequence[str], report: SwapReport | None, ready: Preflight | None) -> PerfDump:
    """Return the dump with the provenance of this run. Values that the program wrote itself are kept."""
    own = dump.kernwright or RunProvenance(
        preset=_folder_name(program_name(command)),
        workload={"program": shlex.join(command)},
        command=shlex.join(command),
        libraries=library_versions(),
        gpus=ready.gpu_names if ready else [],
        machine=ready.record() if ready else {},
        synchronised=not dump.steps or os.environ.get("SGLANG_DIFFUSION_SYNC_STAGE_PROFILING") == "1",
    )
    settings = own.settings if report is None else {**own.settings, **report.as_settings()}
    return dump.model_copy(update={"kernwright": own.model_copy(update={"settings": settings})})


def _labelled(run: ProgramRun, label: str, series: str = "", turn: int | None = None) -> ProgramRun:
    assert run.dump.kernwright is not None
    own = run.dump.kernwright.model_copy(update={"label": label, "series": series, "turn": turn})
    dump = run.dump.model_copy(update={"kernwright": own})
    return ProgramRun(ending=run.ending, dump=dump, report=run.report)


def _folder_name(program: str) -> str:
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", program).strip("-.") or "program"
