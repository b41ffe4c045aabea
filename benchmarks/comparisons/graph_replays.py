"""GraphReplays: device times taken by hand on the same GPU model, without the judge.

A systematic error of the judge's clock would affect every row. An independent clock shows it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

FILE = Path(__file__).with_name("graph_replays.json")
# These measurements rotated sixteen sets of inputs. For rows that move more than this, no input is still in the 60 MB
# cache when it is used again. Smaller rows may find theirs there, whereas the judge always starts with a cold cache.
COLD_BYTES = 10e6
MOST_APART = 0.05
HEAD = ("| row | MB | contender | by hand, us | judged, us | ratio |", "|---|---|---|---|---|---|")


class JudgedTime(NamedTuple):
    """The judge's time of the same call, and the fewest bytes of its row."""

    device_us: float
    bytes_min: int
    runs_apart: float = 0.0  # the largest relative difference between two runs of the contender on a row of the family


class Replay(BaseModel):
    """One time taken by hand."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    task: str
    row: str
    contender: str
    device_us: float


class GraphReplays(BaseModel):
    """The times taken by hand, under the names of our rows."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    origin: str
    gpu: str
    rows: tuple[Replay, ...]

    def beside(self, judged: Callable[[Replay], JudgedTime | None]) -> list[str]:
        """Return the lines of the section that compares both times.

        Args:
            judged: returns the judge's time for a replay, or None.
        """
        found = [(replay, own) for replay in self.rows if (own := judged(replay)) is not None]
        if not found:
            return []
        cold = [(replay, own) for replay, own in found if own.bytes_min > COLD_BYTES]
        apart = [(replay, own) for replay, own in cold if abs(_ratio(replay, own) - 1) > MOST_APART]
        lines = [
            f"{self.origin[0].upper()}{self.origin[1:]}. For rows that move more than {COLD_BYTES / 1e6:.0f} MB, the "
            f"cache is cold in both measurements: {len(cold) - len(apart)} of {len(cold)} such times agree within "
            f"{MOST_APART:.0%}. Larger differences are bold. The inputs of smaller rows are partly in the cache when "
            "they are timed by hand, and never when they are judged.",
            "",
            *HEAD,
        ]
        for replay, own in found:
            ratio = f"{_ratio(replay, own):.2f}x"
            times = [f"{us:.2f}" for us in (replay.device_us, own.device_us)]
            cells = [replay.row, f"{own.bytes_min / 1e6:.1f}", replay.contender, *times]
            lines.append(f"| {' | '.join([*cells, f'**{ratio}**' if (replay, own) in apart else ratio])} |")
        if apart:
            lines += ["", f"Differences of more than {MOST_APART:.0%}:", ""]
        for replay, own in apart:
            lines.append(f"- {replay.row}, {replay.contender}: {_ratio(replay, own) - 1:+.1%}; {_why(replay, own)}")
        return lines


def _why(replay: Replay, own: JudgedTime) -> str:
    if own.runs_apart < abs(_ratio(replay, own) - 1):
        return "not explained"
    chooses = (
        ", because it chooses its kernels by measurement in every process" if replay.contender == "compile" else ""
    )
    return f"two judgements of one row of this family differed by {own.runs_apart:.1%}{chooses}"


def _ratio(replay: Replay, own: JudgedTime) -> float:
    return own.device_us / replay.device_us


@cache
def graph_replays() -> GraphReplays:
    """Return the times of graph_replays.json."""
    return GraphReplays.model_validate_json(FILE.read_text(encoding="utf-8"))
