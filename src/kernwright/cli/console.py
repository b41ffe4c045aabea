"""The consoles that commands print to, and their progress bar."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from kernwright.core.plain_text import plain

LEAST_COLUMN = 10  # width of a column that wraps
WIDTH = 132  # columns of a verdict's table; a narrower terminal wraps its lines, a pipe gets them unwrapped


class PlainConsole(Console):
    """A console for foreign text: no markup, no emoji codes, no highlighting, no control characters.

    Rich's default reads `[b]name` as markup, in tables and titles too. A style is given with `rich.text.Text`.
    """

    def __init__(self, width: int | None = None, stderr: bool = False) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, width=width, stderr=stderr)

    def render_str(self, text: str, **options: Any) -> Text:
        """Return a string as text. It is escaped here, before Rich measures the columns of a table."""
        return super().render_str(plain(text, newlines=True), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments of a renderable. Only Rich itself may emit control codes, in segments marked as such."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=plain(segment.text, newlines=True))

    def print(self, *objects: Any, **options: Any) -> None:
        """Print objects. A table that needs more columns than the terminal has is not cut: the terminal wraps it."""
        usual = self.width
        try:
            self.width = max([usual, *(_least_width(each) for each in objects)])
            super().print(*objects, **options)
        finally:
            self.width = usual


def _least_width(printed: object) -> int:
    """Return the width at which the columns of tables that must not wrap, such as row ids, are shown in full."""
    if isinstance(printed, Group):
        return max(map(_least_width, printed.renderables), default=0)
    if not isinstance(printed, Table):
        return 0
    total = 1
    for column in printed.columns:
        cells = [str(cell) for cell in (column.header, *column.cells)]
        lines = [len(line) for cell in cells for line in cell.splitlines()]
        total += 3 + (max(lines, default=0) if column.no_wrap else LEAST_COLUMN)
    return total


out = PlainConsole()
if not out.is_terminal or out.width < WIDTH:
    out = PlainConsole(width=WIDTH)
err = PlainConsole(stderr=True)


class ProgressBar:
    """A progress bar on standard error, so that standard output holds only results.

    Args:
        unit: what a phase consists of.
    """

    def __init__(self, unit: str = "rows") -> None:
        self._unit = unit
        what = TextColumn("{task.description}", markup=False)
        note = TextColumn("{task.fields[note]}", style="dim", markup=False)
        columns = (what, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), note)
        self._progress = Progress(*columns, console=err, transient=True)
        self._current: TaskID | None = None

    def __enter__(self) -> ProgressBar:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def phase(self, what: str, steps: int) -> None:
        """Begin a phase of so many steps."""
        if self._current is not None:
            self._progress.remove_task(self._current)
        self._current = self._progress.add_task(what, total=steps, note="")
        if not err.is_terminal:
            err.print(f"{what} ({steps} {self._unit})")

    def steps_of(self, what: str, steps: int) -> Callable[[int], None]:
        """Begin a phase, and return a function that advances it by one step."""
        self.phase(what, steps)
        return lambda _: self.step("")

    def step(self, note: str) -> None:
        """Advance the phase by one step."""
        if self._current is not None:
            self._progress.update(self._current, advance=1, note=note)
