"""Run the whole suite on all processors, as `make test` does.

    python tests/side_by_side.py [options for pytest, except -m and paths]

They run in three steps. First come the tests that do not depend on time, in several processes. Then come those whose
outcome depends on measured time (marked `clock`), in processes with a processor of their own. Last come those whose
outcome depends on all processors (marked `whole_machine`), one after the other, with nothing beside them.

The processes of a step share the test files: each claims the next file that is not claimed yet. The output of a process
is printed when it ends, and its progress in between. Exit status 0: every test passed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).parent
NONE_SELECTED = 5  # pytest's exit status if no test was selected
TOLD_EVERY_S = 30.0
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"
CLAIMS, CLAIM_FILES = "KERNWRIGHT_TEST_CLAIMS", "KERNWRIGHT_TEST_CLAIM_FILES"  # see conftest.py
JUDGE_ONCE = "KERNWRIGHT_TEST_JUDGE_ONCE"  # if set, judges time each block once (see judging_once.py)
MOST_PINNED = 2  # a few long files take most of the time, so that a third process would gain little


@dataclass(frozen=True)
class Part:
    """Tests that run in one process.

    Attributes:
        processor: the only one that the process may use; None: all of them.
        is_timed: whether outcomes depend on measured time.
    """

    name: str
    words: tuple[str, ...]
    processor: int | None = None
    is_timed: bool = False

    def files(self) -> list[Path]:
        named = [Path(word) for word in self.words if Path(word).exists()]
        return [path for own in named for path in (sorted(own.rglob("test_*.py")) if own.is_dir() else [own])]


def together(processors: int) -> tuple[Part, ...]:
    """Return two parts more than there are processors, because some tests only wait: for a process to start, or for the
    judge of another part, of which one at a time may use the processors."""
    return tuple(
        Part(f"process {number}", (str(TESTS), "-m", "not clock and not whole_machine"))
        for number in range(processors + 2)
    )


def pinned(processors: Iterable[int]) -> tuple[Part, ...]:
    """Return parts with the tests that depend on time and use one processor, each part on a processor of its own."""
    words = (*marked("clock"), "-m", "clock and not whole_machine")
    own = sorted(processors)[:MOST_PINNED]
    return tuple(Part(f"judged by the clock on processor {each}", words, each, is_timed=True) for each in own)


def alone() -> Part:
    """Return the part with the tests that depend on all processors."""
    words = (*marked("whole_machine"), "-m", "whole_machine")
    return Part("alone on the machine", words, is_timed=True)


def marked(mark: str) -> list[str]:
    """Return the files with tests that have a mark. Collecting only these saves time."""
    return sorted(str(path) for path in TESTS.rglob("test_*.py") if f"mark.{mark}" in path.read_text(encoding="utf-8"))


class Running:
    """A running part and its output so far."""

    def __init__(self, part: Part, more: list[str], env: dict[str, str]) -> None:
        self.part, self.started = part, time.monotonic()
        self.output = tempfile.TemporaryFile()  # noqa: SIM115 - the file lives as long as this object
        with pinned_to(part.processor):
            self.process = subprocess.Popen(
                [sys.executable, "-m", "pytest", *part.words, *more], stdout=self.output, stderr=subprocess.STDOUT,
                start_new_session=True, env=env,
            )  # fmt: skip

    def said(self) -> str:
        self.output.seek(0)
        return self.output.read().decode(errors="replace")

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGINT)  # makes pytest report its results so far
        try:
            self.process.wait(20.0)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


@contextlib.contextmanager
def pinned_to(processor: int | None) -> Iterator[None]:
    """Let processes that start meanwhile use one processor only."""
    before = os.sched_getaffinity(0)
    if processor is not None:
        os.sched_setaffinity(0, {processor})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def environment(parts: int) -> dict[str, str]:
    """Return the environment of a part among several: they share the processors, so that none starts a thread for each.

    The only part has one thread, too: its judges compute on small tensors, where a second thread gains nothing, and
    waits whenever another program has its processor. Variables for threads that are set stay as they are.
    """
    threads = max(1, len(os.sched_getaffinity(0)) // parts) if parts > 1 else 1
    variables = dict.fromkeys(THREADS, str(threads)) | os.environ
    # Containers often set this variable. The tests start hundreds of Python processes, and without bytecode each of
    # them would compile the modules of Kernwright again. Processes in a sandbox write none, but read what others wrote.
    variables.pop(NO_BYTECODE, None)
    for name in (CLAIMS, CLAIM_FILES, JUDGE_ONCE):  # set for another suite, if this one runs inside a test
        variables.pop(name, None)
    return variables


def run(parts: tuple[Part, ...], more: list[str]) -> list[int]:
    """Run parts at once; several of them share their test files. Return their exit statuses."""
    with tempfile.TemporaryDirectory(prefix="kernwright-claims-") as claims:
        shared = {CLAIMS: claims, CLAIM_FILES: "1"} if len(parts) > 1 else {}
        return _watch([Running(part, more, _variables(part, len(parts)) | shared) for part in parts], Path(claims))


def _variables(part: Part, parts: int) -> dict[str, str]:
    return environment(1) if part.is_timed else environment(parts) | {JUDGE_ONCE: "1"}


def _watch(running: list[Running], claims: Path) -> list[int]:
    left, told = list(running), time.monotonic()
    files = len({path for one in running for path in one.part.files()})
    try:
        while left:
            time.sleep(0.2)
            for one in [one for one in left if one.process.poll() is not None]:
                left.remove(one)
                print(f"==== {one.part.name}: {time.monotonic() - one.started:.0f} s\n{one.said()}", flush=True)
            if left and time.monotonic() - told > TOLD_EVERY_S:
                told = time.monotonic()
                begun = sum(1 for _ in claims.iterdir())
                print(f"{begun} of {files} test files were begun" if begun else "at work", flush=True)
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
            f"{unfit[0]} would select other tests than all of them\n  remedy: python -m pytest {' '.join(more)}",
            file=sys.stderr,
        )
        return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # behaves like Ctrl-C, so that no process is left running
    try:
        processors = os.sched_getaffinity(0)
        codes = run(together(len(processors)), more)
        codes += run(pinned(processors), more)
        codes += run((alone(),), more)
    except KeyboardInterrupt:
        return 2
    if all(code == NONE_SELECTED for code in codes):
        print("no test ran")
        return NONE_SELECTED
    return next((code for code in codes if code not in (0, NONE_SELECTED)), 0)


if __name__ == "__main__":
    sys.exit(main())
