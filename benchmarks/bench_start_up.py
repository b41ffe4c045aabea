"""Time the commands that must answer at once: help, the list of tasks and single tasks.

    python benchmarks/bench_start_up.py

The bars are 0.5 s and 0.4 s of processor time for each command on two cores. The table has the medians of several runs.
Processor time is that of the command's own code and depends less on other work on the machine. The exit status is 1 if
a median is above its bar.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import time

COMMANDS = ("--help", "task list", "task show norm_infer", "task show norm_scale_shift")
RUNS = 9
BAR_S = 0.5
PROCESSOR_BAR_S = 0.4


def seconds(words: list[str]) -> tuple[float, float]:
    """Return how long one run of a command takes from start to exit, and its processor time in user mode."""
    command = [sys.executable, "-m", "kernwright.cli.main", *words]
    begin, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - used


def main() -> int:
    print("| command | median s | bar s | median processor s | bar s |\n|---|---|---|---|---|")
    slow = False
    for command in COMMANDS:
        seconds(command.split())  # the first run writes byte code and fills the file cache
        runs = [seconds(command.split()) for _ in range(RUNS)]
        median, used = (statistics.median(each) for each in zip(*runs, strict=True))
        slow |= median > BAR_S or used > PROCESSOR_BAR_S
        print(f"| `kernwright {command}` | {median:.2f} | {BAR_S} | {used:.2f} | {PROCESSOR_BAR_S} |")
    return int(slow)


if __name__ == "__main__":
    sys.exit(main())
