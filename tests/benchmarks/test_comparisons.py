"""The milestone bars and the published figures of others: which rows count, and when a bar is met."""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Any

import pytest
from comparisons.bars import ASKED_OF, MilestoneBar, bars_of
from comparisons.kda_pilot import family_table, kda_pilot, row_table
from comparisons.page import page_of
from made_results import MadeResults, metric

from kernwright.report.field.field import Field, Standing
from kernwright.report.results.page import files_of
from kernwright.report.results.results import Results, loses_clearly
from kernwright.tasks.catalog import find_task
from kernwright.tasks.policy import METRICS

PEER = "sglang@0.5.23"
PEERS = (PEER, "sglang@0.5.12.post1", "liger@0.8.5", "compile", "eager")
SELECTING = ("norm_scale_shift_select", "residual_norm_scale_shift_select")


class Compared(MadeResults):
    """Made-up results, and the bars for their tasks."""

    def bars(self, results: Results | None = None) -> list[MilestoneBar]:
        return bars_of(results or self.results, [task.name for task in self.tasks])

    def bar(self, words: str, asked: str = "") -> MilestoneBar:
        (found,) = (bar for bar in self.bars() if words in bar.figure and asked in bar.asked)
        return found


def geomean(values: list[float]) -> float:
    return math.exp(statistics.fmean(math.log(value) for value in values))


@pytest.mark.parametrize(("factor", "met"), [(2.6, True), (2.4, False)])
def test_small_rows_are_those_of_few_tokens_and_one_foreign_call_is_apart(factor: float, met: bool) -> None:
    made = Compared("norm_scale_shift", "residual_gate_add")
    expected = []
    for number, (task, row) in enumerate(made.rows("norm_scale_shift", "residual_gate", "residual_norm_scale_shift")):
        ratio = factor * (1.1 if number % 2 else 1 / 1.1)
        made.add(task, row, PEER, metrics={"wall": metric(ratio, 20.0)})
        if row.op != "residual_gate" and math.prod(row.concrete_outputs()["y"].shape[:-1]) <= 200:
            expected.append(ratio)
    bar = made.bar("200 tokens or fewer")
    assert bar.measured.startswith(f"{geomean(expected):.3f}x over {len(expected)} of {len(expected)} rows")
    assert bar.met is (geomean(expected) >= 2.5) is met
    direct = made.bar("one tvm-ffi call")
    assert "over 1 of 1 rows" in direct.measured and "full_s126_c2048" in direct.measured and direct.met


def test_the_best_peer_is_the_one_with_our_smallest_gain() -> None:
    made = Compared("fuse_scale_shift")
    rows = made.rows("scale_shift")
    for task, row in rows:
        for baseline, ratio in ((PEER, 1.20), ("compile", 1.03), ("eager", 4.0)):
            made.add(task, row, baseline, metrics={"device": metric(ratio, 30.0)})
    assert made.bar("elementwise", "every row").met is None, "one that has its op was not met"
    for task, row in rows:
        made.add(task, row, "sglang@0.5.12.post1", metrics={"device": metric(1.10, 30.0)})
    each, together = (made.bar("elementwise", asked) for asked in ("every row", "geomean"))
    assert each.met and together.met and together.measured == f"1.030x over {len(rows)} of {len(rows)} rows"
    made.add(*rows[0], "liger@0.8.5", metrics={"device": metric(0.97, 30.0)})
    assert made.bar("elementwise", "every row").met is False
    assert rows[0][1].id in made.bar("elementwise", "every row").measured
    assert made.bar("reduction").met is None, "nothing that reduces was judged"


@pytest.mark.parametrize(
    ("ratio", "us", "spread", "clearly"),
    [
        (0.95, 30.0, 0.01, True),
        (0.965, 30.0, 0.01, False),  # its interval extends beyond the limit
        (0.95, 9.0, 0.001, True),  # slower by 0.45 us
        (0.95, 5.0, 0.001, False),  # 0.25 us is within the clock's noise
        (1.2, 5.0, 0.01, False),
    ],
)
def test_a_clear_loss_is_a_whole_interval_or_more_than_the_clocks_own(
    ratio: float, us: float, spread: float, clearly: bool
) -> None:
    assert loses_clearly(metric(ratio, us, spread)) is clearly
    made = Compared("fuse_scale_shift")
    made.add(*made.rows("scale_shift")[0], PEER, metrics={name: metric(ratio, us, spread) for name in METRICS})
    made.fill(*PEERS)
    assert made.bar("whole interval").met is not clearly


def test_a_clear_loss_may_be_to_another_peer_than_the_best() -> None:
    made = Compared("fuse_scale_shift")
    row = made.rows("scale_shift")[0]
    made.add(*row, PEER, metrics={name: metric(0.90, 30.0, 0.2) for name in METRICS})  # its interval extends beyond 1
    made.add(*row, "compile", metrics={name: metric(0.95, 30.0, 0.01) for name in METRICS})
    made.fill(*PEERS)
    bar = made.bar("whole interval")
    assert bar.met is False and f"{row[1].id} wall 0.950x of compile" in bar.measured


def test_shares_of_a_copy_are_those_of_large_rows() -> None:
    made = Compared("fuse_scale_shift")
    shares = []
    for number, (task, row) in enumerate(made.rows("scale_shift")):
        share = 0.90 + 0.004 * number if row.bytes_min >= 100e6 else 0.1
        made.add(task, row, PEER, metrics={"device": metric(1.0, 100.0)}, fastest_copy_us=100.0 * share)
        shares += [share] if row.bytes_min >= 100e6 else []
    made.fill(PEER, metrics={"device": metric(1.0, 100.0)}, fastest_copy_us=93.0)
    shares += [0.93 for _, row in made.rows(*SELECTING) if row.bytes_min >= 100e6]
    middle, worst = made.bar("share of a copy", "median"), made.bar("share of a copy", "worst")
    assert middle.measured.startswith(f"{statistics.median(shares):.1%} over {len(shares)}")
    assert middle.met is (statistics.median(shares) >= 0.92)
    assert worst.measured.startswith(f"{min(shares):.1%}") and worst.met


def test_a_row_that_a_baseline_declines_is_no_fault_of_ours() -> None:
    made = Compared("fuse_scale_shift")
    first, second, *_ = made.rows("scale_shift")
    made.add(*first, PEER, verdict="failed", cases=0, reasons=("the baseline declines: too wide",))
    made.add(*second, PEER, verdict="same", metrics={"device": metric(1.1, 30.0)})
    made.add(*first, "eager", metrics={"device": metric(1.1, 30.0)})
    made.fill(PEER)
    assert made.bar("incorrect or failed").met
    page = files_of(made.results, Path("docs/results.md"), "made up")[Path("docs/results/fuse_scale_shift.md")]
    assert f"| {PEER} | declined | too wide | `{first[1].id}` |" in page
    made.add(*second, "eager", verdict="incorrect", reasons=("y differs",))
    assert made.bar("incorrect or failed").met is False and made.bar("bits").met is False
    made.add(*second, "eager", verdict="failed", cases=0, reasons=("hung: no answer within 120 s",))
    assert made.bar("incorrect or failed").met is False


def test_rows_of_a_grid_count_for_bits_and_for_nothing_else() -> None:
    made = Compared("fuse_scale_shift")
    task, row = made.rows("scale_shift")[0]
    made.add(task, row, "eager", metrics={"device": metric(1.1, 30.0)})
    results = made.results
    standing = results.standings[task.name, row.id, "eager"]
    for number in range(sum(grid.size for grid in task.grids if grid.op == "scale_shift")):
        right = standing.row.model_copy(update={"id": f"g{number}"})
        results.grid[task.name, right.id, "eager"] = Standing(right, standing.run)
    bits = next(bar for bar in made.bars(results) if "bits" in bar.figure)
    assert bits.verdict == "judged so far: 2209 of 2237"
    for _, other in made.rows("scale_shift"):
        made.add(task, other, "eager")
    results.standings = dict(made.standings)
    assert next(bar for bar in made.bars(results) if "bits" in bar.figure).verdict == "met"
    wrong = results.standings[task.name, row.id, "eager"].row.model_copy(update={"id": "g0", "verdict": "incorrect"})
    results.grid[task.name, "g0", "eager"] = Standing(wrong, standing.run)
    bits = next(bar for bar in made.bars(results) if "bits" in bar.figure)
    assert bits.met is False
    assert bits.measured == "29 of 29 rows, 2208 of 2208 grid rows, 6711 cases; not equal: g0"
    hung = wrong.model_copy(update={"verdict": "failed", "reasons": ("hung: no answer within 120 s",)})
    results.grid[task.name, "g0", "eager"] = Standing(hung, standing.run)
    assert next(bar for bar in made.bars(results) if "bits" in bar.figure).met is False
    assert "g0" not in files_of(results, Path("docs/results.md"), "made up")[Path("docs/results/fuse_scale_shift.md")]


def test_figures_of_kda_pilot_are_matched_with_our_rows() -> None:
    known = {family: {row.id for row in find_task(family).rows} for family in {row.family for row in kda_pilot().rows}}
    assert all(row.row in known[row.family] for row in kda_pilot().rows)
    made = Compared("norm_scale_shift")
    task, row = next(pair for pair in made.rows("norm_scale_shift") if pair[1].id == "plain_s1004_d4096_row-bf16")
    made.add(task, row, "sglang@0.5.12.post1", metrics={"stream": metric(3.0, 9.0)})
    (line,) = (line for line in row_table(made.results, task) if "event_amplified |" in line)
    assert "| 27.2 | 1.87x | stream | 9.00 | 3.00x (2.97–3.03) against sglang@0.5.12.post1 | – |" in line
    assert any(
        "| 1 | 1.87x | stream against sglang@0.5.12.post1 | 3.00x |" in line for line in family_table(made.results)
    )


@pytest.mark.parametrize("verdict", ["incorrect", "tampered", "failed"])
def test_an_incorrect_row_has_no_time_but_stays_visible(verdict: Any) -> None:
    made = Compared("fuse_scale_shift")
    first, second, *_ = made.rows("scale_shift")
    times = {name: metric(9.0, 5.0) for name in METRICS}
    made.add(*first, PEER, verdict=verdict, reasons=("y differs",), metrics=times)
    made.add(*second, PEER, metrics={name: metric(1.5, 30.0) for name in METRICS})
    results = made.results
    assert results.result(*first, PEER, "device") is None and results.share_of_copy(*first) is None
    assert results.best_peer(*first, "device") is None
    assert made.bar("wall, all rows").measured.startswith("1.500x over 1 of ")
    files = files_of(results, Path("docs/results.md"), "made up")
    page = files[Path("docs/results/fuse_scale_shift.md")]
    assert f"| `{first[1].id}` | {verdict} |" in page and "9.00x" not in "".join(files.values())
    assert f"| {PEER} | {verdict} | y differs | `{first[1].id}` |" in page
    assert "| scale_shift of x bf16, shift bf16 | sglang@0.5.23 | 1 of 11 | 1.50x | 1.50x | 1.50x |" in page


def test_no_bar_is_met_before_every_row_of_every_task_was_judged() -> None:
    made = Compared(*ASKED_OF)
    made.fill(*PEERS, metrics={name: metric(3.0, 30.0) for name in METRICS}, fastest_copy_us=29.0)
    results = made.results
    bars = bars_of(results)
    with_grids = [bar for bar in bars if "grid" in bar.figure]
    assert [bar.verdict for bar in bars if bar not in with_grids] == ["met"] * (len(bars) - 2)
    for bar, contract in zip(with_grids, ("exact", "close"), strict=True):
        judged = sum(task.op_of(row).contract == contract for task in made.tasks for row in task.select("production"))
        in_grids = sum(own.size for task in made.tasks for own in task.grids if task.ops[own.op].contract == contract)
        assert bar.verdict == f"judged so far: {judged} of {judged + in_grids}" and in_grids, "the grids were not"
    rows = sum(len(task.select("production")) for task in made.tasks)
    row = made.rows("scale_shift")[0][1]
    large = next(row for task, row in made.rows("scale_shift") if row.bytes_min >= 100e6)
    for key in [key for key in results.standings if key[1] in (row.id, large.id)]:
        del results.standings[key]
    for bar in bars_of(results):
        if "tokens or fewer" in bar.figure or "reduction" in bar.figure or "one tvm-ffi" in bar.figure:
            continue  # this bar applies to other rows
        assert bar.met is None and bar.verdict == f"judged so far: {bar.judged} of {bar.rows}", bar.figure
    judged = rows - len({row.id, large.id})
    assert first_bar(results, "wall, all rows").verdict == f"judged so far: {judged} of {rows}"
    few = Compared("fuse_scale_shift")
    few.fill(*PEERS, metrics={name: metric(3.0, 30.0) for name in METRICS}, fastest_copy_us=29.0)
    assert not any(bar.met for bar in bars_of(few.results)), "of seven tasks nothing is known"
    assert "and 7 tasks are missing" in first_bar(few.results, "wall, all rows").verdict


def first_bar(results: Results, words: str) -> MilestoneBar:
    return next(bar for bar in bars_of(results) if words in bar.figure)


def test_rows_of_older_sources_do_not_count_and_one_bad_row_fails_a_bar() -> None:
    made = Compared("fuse_scale_shift")
    made.fill(*PEERS)
    assert made.bar("whole interval").verdict == "met"
    (task, row), (_, other), *_ = made.rows("scale_shift")
    key = task.name, row.id, "compile"
    old = made.run(task.name, "compile").model_copy(update={"candidate_digest": "older"})
    made.standings[key] = Standing(made.standings[key].row, old)
    assert made.bar("whole interval").verdict == "judged so far: 30 of 31"
    assert made.bar("wall, all rows").met is not None, "against the peer all were"
    made.add(task, other, "eager", metrics={name: metric(0.5, 30.0) for name in METRICS})
    assert made.bar("whole interval").verdict == "judged so far: 30 of 31; already missed"


def test_the_page_has_the_bars_and_names_the_figures_that_the_judge_does_not_measure() -> None:
    made = Compared("fuse_scale_shift")
    made.fill(PEER)
    text = page_of(made.results, Field(tasks=made.tasks, baseline="eager", device="cuda", rows="production"), "made up")
    assert "| rows on which our op is incorrect or failed | 0 |" in text and "`python benchmarks/bench_ops.py`" in text
