"""KernelCensus: the kernels that a run must have launched, searched in the traces that it wrote."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from kernwright.core.errors import KernwrightError
from kernwright.diagnose.perf_dump.dump import PROFILER_OPTIONS
from kernwright.diagnose.program_run.command_options import is_sglang_generate
from kernwright.diagnose.program_run.dump_file import FileState, state_of
from kernwright.diagnose.program_run.native_gate import require_kernels
from kernwright.diagnose.trace.chrome import ChromeTrace

_SUFFIXES = (".json", ".json.gz")
_FOLDERS = ("SGLANG_DIFFUSION_TORCH_PROFILER_DIR", "SGLANG_TORCH_PROFILER_DIR")
_USUAL = "logs"  # default folder of sglang's traces


class KernelCensus:
    """Expected kernels, and the place of the traces with the files that were there before the run.

    Args:
        expected: regular expressions, each of which must match the name of a kernel.
        place: a trace, or a folder of traces.
    """

    def __init__(self, expected: Sequence[str], place: Path) -> None:
        self._expected, self._place = expected, place
        self._before = self._states()

    def check(self) -> None:
        """Raise NotNative if a kernel is missing in the traces of the run, all of them together."""
        traces = [path for path, state in self._states().items() if self._before.get(path) != state]
        if not traces:
            raise KernwrightError(
                f"the program wrote no trace to {self._place}", "name its file or folder with --trace PATH"
            )
        events = (event for path in sorted(traces) for event in ChromeTrace(path))
        require_kernels((str(event.get("name")) for event in events if event.get("cat") == "kernel"), self._expected)

    def _states(self) -> dict[Path, FileState | None]:
        found = [self._place] if self._place.is_file() else sorted(self._place.rglob("*"))
        return {path: state_of(path) for path in found if path.name.endswith(_SUFFIXES)}


def census_of(
    expected: Sequence[str], trace: Path | None, command: Sequence[str], environment: Mapping[str, str]
) -> KernelCensus | None:
    """Return the census of a run, or None if nothing is expected.

    Raises:
        KernwrightError: a pattern is wrong, or the command names no trace.
    """
    for pattern in expected:
        try:
            re.compile(pattern)
        except re.error as error:
            raise KernwrightError(
                f"--expect-kernel {pattern!r} is not a regular expression: {error}", "escape special characters with \\"
            ) from None
    if not expected:
        return None
    if trace is not None:
        return KernelCensus(expected, trace)
    if not is_sglang_generate(command) or not {word.partition("=")[0] for word in command} & {*PROFILER_OPTIONS}:
        raise KernwrightError(
            "--expect-kernel needs a trace", "add --profile to `sglang generate`, or name the trace with --trace PATH"
        )
    named = next((environment[name] for name in _FOLDERS if environment.get(name)), _USUAL)
    return KernelCensus(expected, Path(named))
