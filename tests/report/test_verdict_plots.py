"""Plots against a naive twin, which computes coordinates from two ticks of the axis."""

from __future__ import annotations

import math
import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernwright.judge.record.verdict import MetricResult, Outcome, RowVerdict
from kernwright.report.verdict_plots import (
    OUTCOMES,
    SHAPES,
    TICK_GAP,
    LogScale,
    bandwidth_plot,
    copy_shares,
    interval_text,
    magnitude,
    speedup_plot,
)

ROUNDING = 0.011  # coordinates are written with two decimals


def a_result(ratio: float, spread: float = 1.02, noise: float = 0.01, baseline_us: float = 100.0) -> MetricResult:
    outcome: Outcome = "faster" if ratio > 1 else "slower"
    return MetricResult(
        ratio=ratio, interval=(ratio / spread, ratio * spread), noise_band=noise, baseline_us=baseline_us,
        candidate_us=baseline_us / ratio, quads=20, outcome=outcome,
    )  # fmt: skip


def a_row(name: str, verdict: Outcome = "faster", result: MetricResult | None = None, **more: object) -> RowVerdict:
    fields: dict[str, object] = {"op": "norm", "bytes_min": 4_000_000, "fastest_copy_us": 40.0, "cases": 14}
    metrics = {"stream": result} if result else {}
    return RowVerdict.model_validate(fields | {"id": name, "verdict": verdict, "metrics": metrics} | more)


def drawn(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)


def with_class(root: ElementTree.Element, tag: str, kind: str) -> list[ElementTree.Element]:
    return [e for e in root.iter(tag) if kind in (e.get("class") or "").split()]


def naive_axis(root: ElementTree.Element) -> tuple[tuple[float, float], tuple[float, float]]:
    ticks = [(float((e.text or "").rstrip("×")), float(e.get("x", ""))) for e in with_class(root, "text", "tick")]
    return min(ticks), max(ticks)


def naive_place(root: ElementTree.Element, ratio: float) -> float:
    (low, left), (high, right) = naive_axis(root)
    return left + (right - left) * (math.log(ratio) - math.log(low)) / (math.log(high) - math.log(low))


def markers(root: ElementTree.Element) -> list[float]:
    places = [e.get("transform", "") for e in with_class(root, "path", "marker")]
    return [float(re.findall(r"-?[\d.]+", place)[0]) for place in places]


RATIOS = (0.01, 0.4, 0.97, 1.0, 1.25, 3.0, 500.0)


def test_dots_whiskers_and_noise_bands_follow_a_log_scale() -> None:
    rows = [a_row(f"r{i}", result=a_result(ratio, 1.3, 0.05)) for i, ratio in enumerate(RATIOS)]
    root = drawn(speedup_plot(rows, "stream", "k"))
    slack = 8 * ROUNDING  # the naive axis is itself read from rounded ticks, and extends a little beyond them
    assert markers(root) == pytest.approx([naive_place(root, r) for r in RATIOS], abs=slack)
    whiskers = with_class(root, "line", "whisker")
    assert [w.get("data-row") for w in whiskers] == [row.id for row in rows]
    assert [float(w.get("x1", "")) for w in whiskers] == pytest.approx(
        [naive_place(root, r / 1.3) for r in RATIOS], abs=slack
    )
    assert [float(w.get("x2", "")) for w in whiskers] == pytest.approx(
        [naive_place(root, r * 1.3) for r in RATIOS], abs=slack
    )
    for band in with_class(root, "rect", "noise"):
        left, width = float(band.get("x", "")), float(band.get("width", ""))
        assert (left, left + width) == pytest.approx((naive_place(root, 1 / 1.05), naive_place(root, 1.05)), abs=slack)


@given(st.lists(st.floats(1e-4, 1e4), min_size=2, max_size=12, unique=True))
@settings(max_examples=60, deadline=None)
def test_a_greater_ratio_is_never_further_left_and_all_stay_on_the_axis(ratios: list[float]) -> None:
    ordered = sorted(ratios)
    root = drawn(speedup_plot([a_row(f"r{i}", result=a_result(r)) for i, r in enumerate(ordered)], "stream", "k"))
    places = markers(root)
    assert all(before <= after for before, after in pairwise(places))
    assert places[0] < places[-1] or ordered[-1] / ordered[0] < 1.01
    assert all(0 < place < 1000 for place in places)


@pytest.mark.parametrize(("low", "high"), [(0.9, 1.12), (0.5, 2.2), (0.8, 7.0), (0.005, 900.0), (1e-6, 1e6)])
def test_ticks_include_one_and_stand_apart(low: float, high: float) -> None:
    scale = LogScale(low, high, 200.0, 800.0)
    ticks = scale.ticks()
    assert 1.0 in ticks and len(ticks) >= 3
    assert all(scale.at(b) - scale.at(a) >= TICK_GAP for a, b in pairwise(ticks))


def test_a_scale_accepts_an_unbounded_interval() -> None:
    wide = a_result(1.2).model_copy(update={"interval": (0.0, 1e9), "noise_band": 1e9})
    narrow = speedup_plot([a_row("a", result=a_result(1.2))], "stream", "k")
    both = drawn(speedup_plot([a_row("a", result=a_result(1.2)), a_row("b", result=wide)], "stream", "k"))
    whisker = with_class(both, "line", "whisker")[1]
    assert 0 < float(whisker.get("x1", "")) < float(whisker.get("x2", "")) < 1000
    assert (
        float(with_class(both, "line", "whisker")[0].get("x2", ""))
        - float(with_class(both, "line", "whisker")[0].get("x1", ""))
        > 3
    ), "the other row's whisker must not be flattened away"
    assert "unbounded" in "".join(both.itertext()) and "unbounded" not in narrow


@pytest.mark.parametrize("narrow", [False, True])
def test_a_plot_has_the_rows_with_a_time(narrow: bool) -> None:
    rows = [
        a_row("ok", result=a_result(1.5)),
        a_row("bad", "failed", reasons=("signal 11",)),
        a_row("no_copy", result=a_result(1.5), fastest_copy_us=None),
    ]
    timed = {speedup_plot: {"ok", "no_copy"}, bandwidth_plot: {"ok"}}
    for plot, ids in timed.items():
        root = drawn(plot(rows, "stream", "k", narrow))
        assert {label[0].tail for label in with_class(root, "text", "row")} == ids
        assert with_class(root, "text", "caption") and "signal 11" not in "".join(root.itertext())
        width = float((root.get("viewBox") or "").split()[2])
        assert all(0 <= float(text.get("x", "")) <= width for text in root.iter("text"))


def test_every_outcome_has_a_shape_of_its_own() -> None:
    assert set(SHAPES) == set(OUTCOMES) and len(set(SHAPES.values())) == len(OUTCOMES)
    rows = [a_row(outcome, outcome, a_result(1.1)) for outcome in OUTCOMES]
    paths = [e.get("d") for e in with_class(drawn(speedup_plot(rows, "stream", "k")), "path", "marker")]
    assert paths == [SHAPES[outcome] for outcome in OUTCOMES]


def test_bars_are_the_copy_time_over_each_sides_time() -> None:
    row = a_row("r", result=a_result(2.0, baseline_us=100.0), fastest_copy_us=40.0)  # 40/50 and 40/100
    assert copy_shares(row, "stream") == pytest.approx((0.8, 0.4))
    root = drawn(bandwidth_plot([row], "stream", "k"))
    candidate, baseline = (float(with_class(root, "rect", s)[0].get("width", "")) for s in ("candidate", "baseline"))
    ticks = {e.text: float(e.get("x", "")) for e in with_class(root, "text", "tick")}
    assert candidate == pytest.approx(0.8 * (ticks["100 %"] - ticks["0 %"]), abs=2 * ROUNDING)
    assert candidate == pytest.approx(2 * baseline, abs=3 * ROUNDING)
    words = "".join(root.itertext())
    assert "80.0 %" in words and "40.0 %" in words and "80.00 GB/s" in words  # 4 MB in 50 us


def test_a_share_beyond_the_axis_is_cut_but_still_stated() -> None:
    root = drawn(bandwidth_plot([a_row("r", result=a_result(1.0), fastest_copy_us=700.0)], "stream", "k"))
    assert "700.0 %" in "".join(root.itertext()) and len(with_class(root, "text", "cut")) == 2
    assert all(float(bar.get("x", "")) + float(bar.get("width", "")) < 1000 for bar in with_class(root, "rect", "bar"))


@pytest.mark.parametrize("count", [0, 1, 300])
def test_any_number_of_rows_is_well_formed_and_described(count: int) -> None:
    rows = [a_row(f"r{i}", result=a_result(0.01 * 1.036**i)) for i in range(count)]
    for plot in (speedup_plot, bandwidth_plot):
        svg = plot(rows, "stream", "k")
        root = drawn(svg)
        assert root.get("role") == "img" and [child.tag for child in root[:2]] == ["title", "desc"]
        assert root.get("aria-labelledby", "").split() == [child.get("id") for child in root[:2]]
        assert not re.search(r"\b(nan|inf)\b", svg, re.IGNORECASE)


def test_names_are_escaped_and_long_ones_shortened_with_the_full_name_as_title() -> None:
    name = "<script>\"'&" + "x" * 80
    root = drawn(speedup_plot([a_row(name, result=a_result(1.1))], "stream", "k"))  # parses, so it was escaped
    label = with_class(root, "text", "row")[0]
    assert label[0].text == f"{name}: faster" and "…" in (label[0].tail or "") and len(label[0].tail or "") <= 42


def test_figures_as_text() -> None:
    assert [magnitude(v) for v in (0.0104, 1.4234, 14.234, 142.34, 1423.4)] == [
        "0.0104",
        "1.423",
        "14.23",
        "142.3",
        "1,423",
    ]
    assert magnitude(math.nan) == magnitude(math.inf) == "not finite"
    assert interval_text((0.98765, 1.02)) == "0.988 – 1.020"
