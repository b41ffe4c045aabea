"""Time and peak memory of `kernwright hotspots` on a large trace, next to Meta's HolisticTraceAnalysis.

    python benchmarks/bench_traces.py make TRACE --out large.json --megabytes 300
    python benchmarks/bench_traces.py measure large.json --folder RECORD [--hta PYTHON]
    python benchmarks/bench_traces.py page --folder RECORD

`make` repeats a recorded trace with shifted times and numbers until it has the size. `measure` runs each tool in a
process of its own. PYTHON is the interpreter of an environment with HolisticTraceAnalysis, which makes its table of
kernels and its breakdown of idle time. `page` writes docs/figures_traces.md.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import figures

from kernwright.judge.device.cpu import CpuDevice

BAR_SECONDS, BAR_BYTES = 60.0, 1e9
NUMBERS = ("correlation", "External id", "Ev Idx", "Python id", "Python parent id", "Record function id")
MEGA = 1e6
TARGET = Path("docs/figures_traces.md")
HTA = """
import sys
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="")
kinds, kernels = analysis.get_gpu_kernel_breakdown(visualize=False, num_kernels=1000, duration_ratio=1.0)
idle, _ = analysis.get_idle_time_breakdown(ranks=[0], visualize=False)
print(len(kernels), len(idle))
"""


def make(source: Path, out: Path, megabytes: float) -> None:
    """Write a trace that repeats the events of another one."""
    content = source.read_bytes()
    trace = json.loads(gzip.decompress(content) if source.suffix == ".gz" else content)
    events = trace.pop("traceEvents")
    timed = [event for event in events if event.get("ph") == "X" and "dur" in event]
    start = min(event["ts"] for event in timed)
    period = max(event["ts"] + event["dur"] for event in timed) - start + 100.0
    largest = max(int(event.get("args", {}).get(name) or 0) for event in timed for name in NUMBERS) + 1
    with out.open("w", encoding="utf-8") as target:
        target.write(json.dumps(trace)[:-1] + ', "traceEvents": [\n')
        times = 0
        while target.tell() < megabytes * MEGA:
            moved = (_moved(event, times * period, times * largest) for event in events if times == 0 or "ts" in event)
            target.write((",\n" if times else "") + ",\n".join(json.dumps(event) for event in moved))
            times += 1
        target.write("\n]}\n")
    print(f"{out}: {times} times {source.name}, {out.stat().st_size / MEGA:.0f} MB")


def _moved(event: dict[str, Any], later: float, more: int) -> dict[str, Any]:
    if "ts" not in event:
        return event
    moved = event | {"ts": event["ts"] + later}
    if "id" in moved and isinstance(moved["id"], int):
        moved["id"] += more
    if isinstance(event.get("args"), dict):
        args = event["args"]
        moved["args"] = args | {name: args[name] + more for name in NUMBERS if isinstance(args.get(name), int)}
    return moved


@dataclass(frozen=True)
class Measured:
    """One run: elapsed seconds, seconds of processors (which a busy machine does not stretch), peak memory, output."""

    seconds: float
    cpu_seconds: float
    peak_bytes: float
    printed: str


def measured(command: list[str]) -> Measured:
    """Run a command and measure it."""
    begin = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        printed = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command[:4])} failed with status {process.returncode}")
    taken = time.perf_counter() - begin
    return Measured(taken, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024.0, printed)


def measure(trace: Path, folder: Path, hta: Path | None, runs: int) -> int:
    commands = {"kernwright hotspots": [sys.executable, "-m", "kernwright.cli.main", "hotspots", str(trace), "--json"]}
    if hta:
        commands["HolisticTraceAnalysis"] = [str(hta), "-c", HTA, str(trace)]
    found: dict[str, list[Measured]] = {name: [] for name in commands}
    for _ in range(runs):  # in turns, so that a busy machine slows both
        for name, command in commands.items():
            found[name].append(measured(command))
    record: dict[str, Any] = {"trace, MB": round(trace.stat().st_size / MEGA)}
    for name, own in found.items():
        record[f"{name}: seconds, median of {runs}"] = statistics.median(each.seconds for each in own)
        record[f"{name}: seconds of processors, least of {runs}"] = min(each.cpu_seconds for each in own)
        record[f"{name}: peak memory, MB"] = max(each.peak_bytes for each in own) / MEGA
    diagnosis = json.loads(found["kernwright hotspots"][-1].printed)
    record["hotspots found"] = len(diagnosis["hotspots"])
    if hta:
        record["HolisticTraceAnalysis: version"] = _version(hta)
    figures.note(folder, "traces", record, CpuDevice().describe())
    best = min(found["kernwright hotspots"], key=lambda each: each.seconds)
    return int(best.seconds > BAR_SECONDS or best.peak_bytes > BAR_BYTES)


def _version(python: Path) -> str:
    ask = "import importlib.metadata as m; print(m.version('HolisticTraceAnalysis'))"
    return subprocess.run([str(python), "-c", ask], capture_output=True, text=True, check=True).stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    making = verbs.add_parser("make")
    making.add_argument("trace", type=Path)
    making.add_argument("--out", type=Path, required=True)
    making.add_argument("--megabytes", type=float, default=300.0)
    measuring = verbs.add_parser("measure")
    measuring.add_argument("trace", type=Path)
    measuring.add_argument("--folder", type=Path, required=True, help="folder of the record")
    measuring.add_argument("--hta", type=Path, help="Python of an environment with HolisticTraceAnalysis")
    measuring.add_argument("--runs", type=int, default=3)
    paging = verbs.add_parser("page")
    paging.add_argument("--folder", type=Path, required=True)
    chosen = parser.parse_args()
    if chosen.verb == "make":
        make(chosen.trace, chosen.out, chosen.megabytes)
        return 0
    if chosen.verb == "measure":
        return measure(chosen.trace, chosen.folder, chosen.hta, chosen.runs)
    figures.page(
        chosen.folder,
        TARGET,
        "Figures of trace analysis",
        "benchmarks/bench_traces.py",
        {"traces": "measure large.json --folder RECORD --hta PYTHON"},
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
