"""The whole suite in less time than one process takes: what `make test` runs.

    python tests/side_by_side.py [options for pytest, but -m and paths]

Tests of the judge, and others that judge by the clock (marked `slow`), run one after the other and have the machine to
themselves. The others do so before, side by side: the ops', most of which compile, with sweeps and captures, those of
the judge that no clock matters to, with what nvcc compiles, and all else. Each process's output is printed as a whole
when it has ended, and in between how far they are. Exit status: 0 where every test passed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).parent
NONE_SELECTED = 5  # pytest's exit status
TOLD_EVERY_S = 30.0
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class Part:
    """Tests that run in one process."""

    name: str
    words: tuple[str, ...]


OPS, JUDGE = TESTS / "ops", TESTS / "judge"
CLOCKLESS = tuple(
    str(JUDGE / name)
    for name in (
        "cuda", "test_compiled.py", "test_copying.py", "test_correctness.py", "test_entry.py", "test_interpreted.py",
        "test_sanitizer.py", "test_shipped.py", "test_verifiers.py", "test_walls.py", "test_worker.py",
    )
)  # fmt: skip
WITH_NVCC = tuple(sorted(map(str, OPS.glob("test_*_cuda.py"))))  # which is most of their time
ELSEWHERE = tuple(str(TESTS / name) for name in ("capture", "campaign/test_sweep.py"))  # so that all three take as long
BUT_THESE = (str(TESTS), *(f"--ignore={path}" for path in (OPS, JUDGE, *ELSEWHERE)))

TOGETHER = (
    Part("ops, sweeps, captures", (str(OPS), *ELSEWHERE, *(f"--ignore={path}" for path in WITH_NVCC))),
    Part("judge, without a clock, and nvcc", (*CLOCKLESS, *WITH_NVCC)),
    Part("all else", (*BUT_THESE, "-m", "not slow")),
)
ALONE = (
    Part("judge", (str(JUDGE), *(f"--ignore={path}" for path in CLOCKLESS))),
    Part("judged by the clock", (*BUT_THESE, "-m", "slow")),
)


class Running:
    """A part at work, and what it has printed."""

    def __init__(self, part: Part, more: list[str], env: dict[str, str]) -> None:
        self.part, self.started = part, time.monotonic()
        self.output = tempfile.TemporaryFile()  # noqa: SIM115 - as long as this
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pytest", *part.words, *more], stdout=self.output, stderr=subprocess.STDOUT,
            start_new_session=True, env=env,
        )  # fmt: skip

    def said(self) -> str:
        self.output.seek(0)
        return self.output.read().decode(errors="replace")

    def share_done(self) -> str:
        """As pytest last put it."""
        shares = [
            line.rsplit("[", 1)[1].rstrip("]").strip() for line in self.said().splitlines() if line.endswith("%]")
        ]
        return shares[-1] if shares else "starting"

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGINT)  # pytest then says what it has seen
        try:
            self.process.wait(20.0)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def environment(parts: int) -> dict[str, str]:
    """Parts side by side share the processors: each with threads for all of them would wait for the others' at every
    operation. What somebody has set stays."""
    threads = max(1, len(os.sched_getaffinity(0)) // parts)
    return (dict.fromkeys(THREADS, str(threads)) if parts > 1 else {}) | os.environ


def run(parts: tuple[Part, ...], more: list[str]) -> list[int]:
    running = [Running(part, more, environment(len(parts))) for part in parts]
    left, told = list(running), time.monotonic()
    try:
        while left:
            time.sleep(0.2)
            for one in [one for one in left if one.process.poll() is not None]:
                left.remove(one)
                print(f"==== {one.part.name}: {time.monotonic() - one.started:.0f} s\n{one.said()}", flush=True)
            if left and time.monotonic() - told > TOLD_EVERY_S:
                told = time.monotonic()
                print("; ".join(f"{one.part.name}: {one.share_done()}" for one in left), flush=True)
    except KeyboardInterrupt:
        for one in left:
            one.end()
            print(f"==== {one.part.name}, interrupted\n{one.said()}", flush=True)
        raise
    return [one.process.returncode for one in running]


def main() -> int:
    more = sys.argv[1:]
    if unfit := [word for word in more if word == "-m" or Path(word.partition("::")[0]).exists()]:
        print(
            f"{unfit[0]} would undo how tests are parted here\n  remedy: python -m pytest {' '.join(more)}",
            file=sys.stderr,
        )
        return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: nothing is left running
    try:
        codes = run(TOGETHER, more)
        for part in ALONE:
            codes += run((part,), more)
    except KeyboardInterrupt:
        return 2
    if all(code == NONE_SELECTED for code in codes):
        print("no test ran")
        return NONE_SELECTED
    return next((code for code in codes if code not in (0, NONE_SELECTED)), 0)


if __name__ == "__main__":
    sys.exit(main())
