"""The trajectory of made histories, as SVG and as text."""

from __future__ import annotations

from xml.etree import ElementTree

from made_history import baseline, history_of, iteration, started

from kernwright.campaign.state.standing import standing_of
from kernwright.report.campaign.plot import points_of, trajectory_plot, trajectory_text

DONE = history_of(
    started(),
    baseline((10.0, 2.0, 1.0)),
    iteration(1, 1.5, improved=True),
    iteration(2, None, hypothesis="<b>"),
    iteration(3, 1.2),
    iteration(4, 2.5, improved=True),
)


def test_the_best_line_rises_where_an_iteration_improved() -> None:
    assert [point.best for point in points_of(DONE)] == [1.5, 1.5, 1.5, 2.5]
    assert standing_of(DONE).ratio == 2.5


def test_the_image_is_a_document_with_a_mark_for_each_iteration() -> None:
    for narrow in (False, True):
        root = ElementTree.fromstring(trajectory_plot(DONE, "key", narrow=narrow, standalone=True))
        space = "{http://www.w3.org/2000/svg}"
        marks = list(root.iter(f"{space}g"))
        assert [mark.get("class") for mark in marks] == [
            "outcome-faster", "outcome-incorrect open", "outcome-same open", "outcome-faster",
        ]  # fmt: skip
        whiskers = [len(list(mark.iter(f"{space}line"))) for mark in marks]
        assert whiskers == [1, 0, 1, 1], "an iteration without times has no interval"
        heights = [float(str(next(mark.iter(f"{space}line")).get("y1"))) for mark in (marks[0], marks[3])]
        assert heights[0] > heights[1], "larger ratios are further up"


def test_a_campaign_without_iterations_has_a_plot() -> None:
    empty = history_of(started())
    ElementTree.fromstring(trajectory_plot(empty, "key", standalone=True))
    assert list(trajectory_text(empty)) == ["no iteration has ended yet"]


def test_the_text_shows_ratio_and_outcome_of_each_iteration() -> None:
    lines = list(trajectory_text(DONE))
    assert len(lines) == 5
    assert "1.500x" in lines[0] and "faster, improved" in lines[0] and "●" in lines[0]
    assert "not timed" in lines[1] and "●" not in lines[1] and "○" not in lines[1]
    assert lines[3].index("●") > lines[0].index("●") > lines[0].index("|"), "the axis grows to the right"
