"""LabelRuns: the repeated runs of one label, read from their perf dumps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernwright.core.errors import BadFile, FileProblems, KernwrightError
from kernwright.diagnose.perf_dump.dump import PerfDump
from kernwright.diagnose.perf_dump.dump_files import find_dumps, read_dump

Turn = tuple[str, int]  # series and number within the series


@dataclass(frozen=True)
class LabelRuns:
    """One side of a comparison: its name, and the files and dumps of its runs."""

    name: str
    paths: tuple[Path, ...]
    dumps: tuple[PerfDump, ...]

    def by_turn(self) -> dict[Turn, PerfDump]:
        """Return the runs that took turns with those of another label."""
        held = ((dump.kernwright, dump) for dump in self.dumps)
        return {
            (own.series, own.turn): dump
            for own, dump in held
            if own is not None and own.series and own.turn is not None
        }


def load_sides(names: Sequence[str], root: Path | None = None) -> list[LabelRuns]:
    """Return the runs of several labels, folders or files. All bad files are reported at once.

    Raises:
        KernwrightError: a name is unknown, a file is not a perf dump, or a profiler ran.
    """
    repeated = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if repeated:
        raise KernwrightError(f"{repeated[0]} is named twice", "name each side once")
    problems = FileProblems()
    sides = []
    for name, shown in zip(names, _shown(names), strict=True):
        paths = find_dumps(name, root)
        dumps = []
        for path in paths:
            with problems.collected():
                dumps.append(_unprofiled(path))
        sides.append(LabelRuns(shown, tuple(paths), tuple(dumps)))
    problems.raise_any()
    return sides


def _unprofiled(path: Path) -> PerfDump:
    dump = read_dump(path)
    if dump.is_profiled:
        raise BadFile(
            path,
            "",
            "is the dump of a profiled run, whose times include the profiler",
            "repeat the run without a profiler",
        )
    return dump


def _shown(names: Sequence[str]) -> list[str]:
    """Return short names for columns: the last part of a path, if no other side has the same."""
    short = [Path(name).stem if Path(name).is_file() else Path(name).name or name for name in names]
    return [each if short.count(each) == 1 else name for each, name in zip(short, names, strict=True)]
