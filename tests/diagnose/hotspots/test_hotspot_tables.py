"""Tables of a diagnosis of a real trace: the fast paths to turn on, in the order of their predicted savings."""

from __future__ import annotations

from pathlib import Path

from kernwright.diagnose.hotspots.ranking import diagnose
from kernwright.diagnose.hotspots.tables import tables_of_diagnosis
from kernwright.diagnose.trace.trace import read_trace

TRACES = Path(__file__).parents[1] / "traces"


def test_the_fast_path_with_the_largest_saving_comes_first() -> None:
    found = diagnose(read_trace(TRACES / "flux1_eager.json.gz"))
    table = next(each for each in tables_of_diagnosis(found, 0.0) if each.title == "Fast paths to turn on")
    savings = [float(row[table.head.index("saves ms")]) for row in table.rows]
    assert len(savings) >= 5 and savings == sorted(savings, reverse=True)
    ranks = [[int(rank) for rank in row[table.head.index("hotspots")].split(", ")] for row in table.rows]
    assert ranks != sorted(ranks), "the order of the hotspots' times would be another one"
    by_rank = {each.rank: each.saving.us if each.saving else 0.0 for each in found.hotspots}
    assert all(
        abs(sum(by_rank[rank] for rank in own) / 1e3 - saved) < 1e-3 for own, saved in zip(ranks, savings, strict=True)
    )
