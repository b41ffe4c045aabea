"""Sanitizer: a candidate's calls under NVIDIA's compute-sanitizer, on request and never timed.

The judge's canaries detect writes beyond an output. The sanitizer also detects reads beyond an input, races in shared
memory and reads of uninitialised memory.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from kernwright.baselines.shipped import Shipped
from kernwright.core.errors import EnvironmentProblem, KernwrightError
from kernwright.core.runtime_interface import STRICT_VARIABLE
from kernwright.judge.contest.shipped_build import find_shipped_build, implemented, target_of
from kernwright.judge.contest.worker_spec import WorkerSpec, candidate_spec, shipped_spec
from kernwright.judge.device.device import Device
from kernwright.judge.device.lock import device_lock
from kernwright.judge.device.selection import find_device
from kernwright.judge.process.environment import worker_environment
from kernwright.judge.process.scratch import scratch_folder
from kernwright.judge.protocol.orders import SanitizerOrders
from kernwright.judge.record.provenance import command_line, library_versions, source_hashes
from kernwright.judge.rounds.progress import Progress
from kernwright.judge.system.sandbox import Sandbox
from kernwright.ledger.ledger import Ledger
from kernwright.tasks.candidate import SHIPPED, Candidate, load_candidate
from kernwright.tasks.catalog import find_task
from kernwright.tasks.task import Task
from kernwright.tasks.workload import Workload

PROGRAM = "compute-sanitizer"
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
FOUND_ERRORS = 87  # exit status that no program of ours uses
BANNER = "========= "
GRACE_S = 10.0
MOST_PRINTED = 20
# If the worker has another user than the tool, the tool waits forever at the first error. All other walls are used.
SAME_USER = {"user": f"{PROGRAM} only receives errors from processes of its own user"}


@dataclass(frozen=True)
class SanitizerFinding:
    """The result of one tool on one candidate."""

    tool: str
    outcome: Literal["clean", "errors", "failed"]
    reason: str
    calls: tuple[str, ...]  # completed calls, by row and size
    seconds: float
    missing: tuple[str, ...] = ()  # walls that could not be set up


def sanitize(
    task_name: str,
    named: Path | str,
    rows: str | None,
    tools: Sequence[str],
    device_name: str,
    progress: Progress,
    ledger: Path | None = None,
    wait_s: float = 0.0,
    deadline_s: float = 600.0,
) -> list[SanitizerFinding]:
    """Run every row of the candidate's op and its neighbouring sizes under each tool. Record the result in the ledger.

    `named` is the candidate's folder, or `kernwright` for the shipped ops.
    """
    if unknown := [tool for tool in tools if tool not in TOOLS]:
        raise KernwrightError(f"{PROGRAM} has no tool {unknown[0]!r}", f"the tools are: {', '.join(TOOLS)}")
    program = find_sanitizer()
    device, task = find_device(device_name), find_task(task_name)
    if device.name == "cpu":
        raise KernwrightError(f"{PROGRAM} needs a GPU", "use --device cuda")
    candidate, chosen = _chosen(task, named, rows, device)
    with device_lock(device.name, wait_s):
        found = []
        progress.phase(f"{PROGRAM} on {candidate.name}", len(tools))
        for tool in tools:
            found.append(watch(program, tool, task, candidate, chosen, device, deadline_s))
            progress.step(f"{tool}: {found[-1].outcome}")
    about = {"task": task.name, "task_digest": task.digest, "candidate": candidate.name}
    with Ledger(ledger).open_run(about | {"command": command_line(), "host": platform.node()}) as run:
        run.append(
            "sanitizer",
            about
            | {
                "candidate_digest": candidate.digest,
                "ops": sorted({row.op for row in chosen}),
                "rows": [row.id for row in chosen],
                "findings": [asdict(finding) for finding in found],
                "hardware": device.describe(),
                "libraries": library_versions() | {PROGRAM: _version(program)},
                "sources": source_hashes(task, candidate),
            },
        )
    return found


def _chosen(
    task: Task, named: Path | str, rows: str | None, device: Device
) -> tuple[Candidate | Shipped, tuple[Workload, ...]]:
    if named != SHIPPED:
        candidate = load_candidate(Path(named))
        return candidate, task.select(rows, candidate.file.op)
    shipped = Shipped.of(task)
    chosen = implemented(task.select(rows), find_shipped_build(shipped.ops, target_of(device.name, device.capability)))
    return shipped.only(row.op for row in chosen), chosen


def _side(candidate: Candidate | Shipped, folder: Path, device: Device) -> WorkerSpec:
    if isinstance(candidate, Candidate):
        return candidate_spec(candidate, folder, device.name)
    side = shipped_spec(find_shipped_build(candidate.ops, target_of(device.name, device.capability)), folder)
    side.environment |= {STRICT_VARIABLE: "1"}  # an error-free reference would say nothing about a kernel
    return side


def find_sanitizer() -> str:
    places = [PROGRAM, "/usr/local/cuda/bin/compute-sanitizer"]
    found = next((path for place in places if (path := shutil.which(place))), None)
    if found is None:
        raise EnvironmentProblem(f"{PROGRAM} was not found", "install the CUDA toolkit and put it on PATH")
    return found


def watch(
    program: str,
    tool: str,
    task: Task,
    candidate: Candidate | Shipped,
    rows: Sequence[Workload],
    device: Device,
    deadline_s: float,
) -> SanitizerFinding:
    """Run one tool over all rows in one process, because most of its time is the start-up."""
    start = time.monotonic()
    with scratch_folder() as scratch:
        side = _side(candidate, scratch / "candidate", device)
        sandbox = Sandbox.around(side.scratch, [task.folder, *side.reads], SAME_USER, for_gpu=device.name != "cpu")
        calls = side.scratch / "calls.jsonl"
        report = side.scratch.parent / f"{tool}.txt"  # written by the tool, not by the worker
        orders = scratch / "orders.json"
        orders.write_text(
            SanitizerOrders(
                side=side.orders,
                sandbox=sandbox.as_argument(),
                log=str(calls),
                task=str(task.folder.absolute()),
                rows=tuple(row.id for row in rows),
                device=device.name,
            ).model_dump_json()
        )
        orders.chmod(0o644)
        environment = worker_environment(side.scratch, task.policy.threads) | device.environment() | side.environment
        command = [
            program, "--tool", tool, "--error-exitcode", str(FOUND_ERRORS), "--log-file", str(report),
            # A wrong kernel errs in every thread, and resolving each error takes minutes.
            "--print-limit", str(MOST_PRINTED), "--show-backtrace", "device",
            sys.executable, "-P", "-s", "-m", "kernwright.judge.worker.sanitizer_program", str(orders),
        ]  # fmt: skip
        outcome, reason = _run(command, environment | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}, side.scratch, deadline_s)
        began, ended, missing = _calls(calls)
        if outcome == "errors":
            reason = f"{_first_error(report)} [{began[-1] if began else 'before the first call'}]"
        elif outcome == "failed" and len(began) > len(ended):
            reason = f"{reason} [{began[-1]}]"
        return SanitizerFinding(
            tool=tool,
            outcome=outcome,
            reason=reason,
            calls=tuple(ended),
            seconds=time.monotonic() - start,
            missing=tuple(missing),
        )


def _run(
    command: list[str], environment: dict[str, str], folder: Path, deadline_s: float
) -> tuple[Literal["clean", "errors", "failed"], str]:
    process = subprocess.Popen(
        command, env=environment, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, start_new_session=True, text=True, errors="replace",
    )  # fmt: skip
    try:
        said, _ = process.communicate(timeout=deadline_s)
    except subprocess.TimeoutExpired:
        return "failed", f"did not finish within {deadline_s:.0f} s"
    finally:
        _end(process)
    if process.returncode == 0:
        return "clean", ""
    if process.returncode == FOUND_ERRORS:
        return "errors", ""
    last = said.strip().splitlines()[-1:] or [f"exit status {process.returncode}"]
    return "failed", last[0][:300]


def _end(process: subprocess.Popen[str]) -> None:
    """Kill the process with all of its children."""
    if process.poll() is not None:
        return
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(GRACE_S)


def _calls(log: Path) -> tuple[list[str], list[str], list[str]]:
    """Return the calls that began, the calls that ended and the missing walls.

    The candidate can write to this log too, so it is a report and no proof.
    """
    began: list[str] = []
    ended: list[str] = []
    missing: list[str] = []
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError:
        return began, ended, missing
    for line in lines:
        try:
            entry = json.loads(line)
            if "missing" in entry:
                missing += [str(wall)[:200] for wall in entry["missing"]]
            else:
                (began if "began" in entry else ended).append(str(next(iter(entry.values())))[:200])
        except (ValueError, TypeError, StopIteration, AttributeError):
            continue
    return began, ended, missing


def _first_error(report: Path) -> str:
    """Return the first error message of the tool's report."""
    try:
        lines = report.read_text(errors="replace").splitlines()
    except OSError:
        return "errors without a report"
    said = [line.removeprefix(BANNER).strip() for line in lines if line.startswith(BANNER)]
    words = [line for line in said if line and not line.startswith(("COMPUTE-SANITIZER", "ERROR SUMMARY", "LEAK"))]
    return words[0][:300] if words else "errors without a message"


def _version(program: str) -> str:
    try:
        said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False, timeout=30.0).stdout
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return next((line.strip() for line in said.splitlines() if line.strip().startswith("Version")), "unknown")
