"""DumpFile: the perf dump that a program writes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kernwright.core.errors import KernwrightError
from kernwright.diagnose.perf_dump.dump import PerfDump
from kernwright.diagnose.perf_dump.dump_files import read_dump
from kernwright.diagnose.program_run.command_options import OWN_PERF_DUMP, PERF_DUMP, is_sglang_generate, option_value

_REMEDY = "look for an error in its output; a dump of an earlier run in the same file does not count"

FileState = tuple[int, int, int]


class DumpFile:
    """The file in which a command writes its perf dump, and what it held before the run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._before = state_of(path)

    def read(self) -> PerfDump:
        """Return the dump of the run. Raise KernwrightError if the run did not write one."""
        state = state_of(self.path)
        if state is None or state == self._before:
            raise KernwrightError(f"the program ended without writing its perf dump to {self.path}", _REMEDY)
        return read_dump(self.path)

    def discard(self) -> None:
        """Remove the dump that the run has written."""
        if state_of(self.path) != self._before:
            self.path.unlink(missing_ok=True)


def with_dump(command: Sequence[str], usual: Path) -> tuple[list[str], DumpFile | None]:
    """Return a command that writes a perf dump, and the file; None if the program has no such option.

    Args:
        usual: the file, if the command does not name one.
    """
    named = option_value(command, PERF_DUMP) or option_value(command, OWN_PERF_DUMP)
    if named is not None:
        return list(command), DumpFile(Path(named).expanduser().absolute())
    if not is_sglang_generate(command):
        return list(command), None
    return [*command, PERF_DUMP, str(usual)], DumpFile(usual)


def state_of(path: Path) -> FileState | None:
    """Return values that change when the file is written again; None if there is no file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
