"""GraphReplays: device times that were taken by hand on the same kind of GPU, without a judge, to hold its own against.

A judge that took its times wrong would do so on every row; somebody else's clock shows it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict

FILE = Path(__file__).with_name("graph_replays.json")
CACHED_BYTES = 60e6  # of that GPU: a row that moves less may find its inputs in the cache there, and never does here
MOST_APART = 0.05
HEAD = ("| row | MB | contender | by hand, us | judged, us | |", "|---|---|---|---|---|---|")


class Replay(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    task: str
    row: str
    contender: str
    device_us: float


class GraphReplays(BaseModel):
    """Somebody else's figures, by our rows' names."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    origin: str
    gpu: str
    rows: tuple[Replay, ...]

    def beside(self, judged: Callable[[Replay], tuple[float, int] | None], gpus_apart: float = 0.0) -> list[str]:
        """A page's section. `judged`: our time of one, in microseconds, and the fewest bytes of its row. `gpus_apart`:
        by how much times of runs on two GPUs of this model differ, as far as is known."""
        found = [(replay, *own) for replay in self.rows if (own := judged(replay)) is not None]
        if not found:
            return []
        beyond = [(replay, us, size) for replay, us, size in found if size > CACHED_BYTES]
        near = sum(abs(us / replay.device_us - 1) <= MOST_APART for replay, us, _ in beyond)
        lines = [
            "## Beside times taken by hand",
            "",
            f"{self.origin[0].upper()}{self.origin[1:]}. Rows that move more than {CACHED_BYTES / 1e6:.0f} MB find the "
            f"cache cold in either: of {len(beyond)} such times {near} lie within {MOST_APART:.0%} of each other. "
            "Smaller ones are partly in the cache there, and never here. Times farther apart are in bold."
            + (
                f" Two runs of this judge on two GPUs were up to {gpus_apart:.1%} apart."
                if gpus_apart > MOST_APART
                else ""
            ),
            "",
            *HEAD,
        ]
        for replay, us, size in found:
            ratio = f"{us / replay.device_us:.2f}x"
            is_apart = size > CACHED_BYTES and abs(us / replay.device_us - 1) > MOST_APART
            cells = [replay.row, f"{size / 1e6:.1f}", replay.contender, f"{replay.device_us:.2f}", f"{us:.2f}"]
            lines.append(f"| {' | '.join([*cells, f'**{ratio}**' if is_apart else ratio])} |")
        return lines


@cache
def graph_replays() -> GraphReplays:
    return GraphReplays.model_validate_json(FILE.read_text(encoding="utf-8"))
