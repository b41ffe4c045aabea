"""Side frames: where in its own files a side raised an error."""

from __future__ import annotations

import traceback
from pathlib import Path

from kernwright.judge.protocol.messages import MOST_FRAMES
from kernwright.judge.protocol.orders import SideOrders

MOST_SOURCE = 120  # characters of a source line
MOST_NAME = 80  # characters of the name of a function


def side_frames(error: BaseException, side: SideOrders) -> list[str]:
    """Return the last frames of an error that lie in the side's own files, the innermost one last.

    A frame is `file:line in function: source line`. Frames of libraries are left out: an author changes only the files
    of the candidate.
    """
    folder = Path(side.folder) if side.folder else Path(side.file).parent if side.kind == "adapter" else None
    if folder is None:
        return []
    found = [
        _frame(place, frame.lineno, f" in {_short(frame.name)}", frame.line)
        for frame in traceback.extract_tb(error.__traceback__)
        if (place := _within(folder, frame.filename))
    ]
    if isinstance(error, SyntaxError) and (place := _within(folder, str(error.filename))):
        found.append(_frame(place, error.lineno, "", error.text))
    return found[-MOST_FRAMES:]


def _within(folder: Path, file: str) -> str | None:
    """Return the path of a file relative to the folder, or None if it lies elsewhere."""
    path = Path(file)
    return path.relative_to(folder).as_posix() if path.is_relative_to(folder) else None


def _short(function: str) -> str:
    """Return the name of a function. Frames of C++ have its whole signature."""
    return function.replace("(anonymous namespace)", "{anonymous}").partition("(")[0][:MOST_NAME]


def _frame(place: str, line: int | None, function: str, source: str | None) -> str:
    shown = (source or "").strip()[:MOST_SOURCE]
    return f"{place}:{line}{function}" + (f": {shown}" if shown else "")
