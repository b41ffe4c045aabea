"""The consoles that commands print to, and their progress bar."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

WIDTH = 132  # columns of a verdict's table; a narrower terminal wraps its lines, a pipe gets them unwrapped

out = Console()
if not out.is_terminal or out.width < WIDTH:
    out = Console(width=WIDTH)
err = Console(stderr=True)


class ProgressBar:
    """A progress bar on standard error, so that standard output holds only results."""

    def __init__(self) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, TextColumn("[dim]{task.fields[note]}"), console=err, transient=True)
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
            err.print(f"{what} ({steps} rows)", highlight=False)

    def step(self, note: str) -> None:
        """Advance the phase by one step."""
        if self._current is not None:
            self._progress.update(self._current, advance=1, note=note)
