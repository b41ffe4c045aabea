"""Time the commands that must answer at once: help, the list of tasks and one task.

    python benchmarks/bench_start_up.py

The bar is 0.5 s for each command on two cores. The table has the median and the largest of several runs; a busy
machine shows in their difference. The exit status is 1 if a median is above the bar.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

COMMANDS = ("--help", "task list", "task show norm_infer", "task show norm_scale_shift")
RUNS = 9
BAR_S = 0.5


def seconds(words: list[str]) -> float:
    """Return how long one run of a command takes, from start to exit."""
    command = [sys.executable, "-m", "kernwright.cli.main", *words]
    begin = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begin


def main() -> int:
    print("| command | median s | largest s | bar s |\n|---|---|---|---|")
    slow = False
    for command in COMMANDS:
        seconds(command.split())  # the first run writes byte code and fills the file cache
        times = [seconds(command.split()) for _ in range(RUNS)]
        median = statistics.median(times)
        slow |= median > BAR_S
        print(f"| `kernwright {command}` | {median:.2f} | {max(times):.2f} | {BAR_S} |")
    return int(slow)


if __name__ == "__main__":
    sys.exit(main())
