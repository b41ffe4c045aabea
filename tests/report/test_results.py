"""The results' pages: made of a ledger alone, found out when they say something else, and nothing lost is left out."""

from __future__ import annotations

import json
import math
import shutil
import statistics
import xml.etree.ElementTree as ElementTree
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from kernwright.cli.main import app
from kernwright.core.errors import KernwrightError, LedgerError
from kernwright.judge.verdict import MetricResult, RowVerdict, Verdict
from kernwright.ledger.ledger import Ledger
from kernwright.report.bars import ASKED_OF, Bar, bars_of, loses_clearly
from kernwright.report.field import Field, Standing
from kernwright.report.kda_pilot import kda_pilot
from kernwright.report.results import Results, tokens_of
from kernwright.report.results_page import files_of
from kernwright.tasks import catalog
from kernwright.tasks.baseline import find_baseline
from kernwright.tasks.catalog import find_task
from kernwright.tasks.policy import METRICS
from kernwright.tasks.shipped import Shipped
from kernwright.tasks.task import Task, load_task
from kernwright.tasks.workload import Workload

PEER = "sglang@0.5.23"
SELECTING = ("norm_scale_shift_select", "residual_norm_scale_shift_select")
PEERS = (PEER, "sglang@0.5.12.post1", "liger@0.8.5", "compile", "eager")


@pytest.fixture
def swept(swept_ops: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The swept tasks in a folder of their own: pages are written into it."""
    shutil.copytree(swept_ops / "tasks", tmp_path / "tasks")
    monkeypatch.setattr(catalog, "task_roots", lambda: [tmp_path / "tasks"])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(swept_ops: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["results", "--ledger", str(swept_ops / "ledger"), "--device", "cpu", *words])


def test_pages_are_written_and_one_that_says_something_else_is_found_out(swept_ops: Path, swept: Path) -> None:
    assert call(swept_ops, "--check").exit_code == 1, "there is none yet"
    assert call(swept_ops).exit_code == 0
    assert call(swept_ops, "--check").exit_code == 0
    summary, family = swept / "docs" / "results.md", swept / "tasks" / "ours" / "RESULTS.md"
    assert not (swept / "docs" / "field.md").exists(), "the ops that ship are no part of the field"
    for page in (summary, family):
        text = page.read_text()
        page.write_text(text.replace("1", "2"))
        found = call(swept_ops, "--check")
        assert found.exit_code == 1 and f"{page.name} and the ledger disagree" in found.output.replace("\n", "")
        page.write_text(text)
    other = shutil.copytree(swept / "tasks" / "ours", swept / "tasks" / "theirs")
    (other / "task.toml").write_text((other / "task.toml").read_text().replace('name = "ours"', 'name = "theirs"'))
    assert "has no record in the ledger" in call(swept_ops, "--check").output.replace("\n", " ")


def test_the_family_page_has_every_row_every_time_and_what_ran(swept_ops: Path, swept: Path) -> None:
    assert call(swept_ops).exit_code == 0
    text = (swept / "tasks" / "ours" / "RESULTS.md").read_text()
    tables = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    normed = [[cell.strip() for cell in cells] for cells in tables if cells[0] == " normed "]
    assert [cells[4] for cells in normed[:1]] == ["cpu (close)"]
    assert normed[0][3] == "close" and "eager: " in normed[0][7] and "slow: " in normed[0][7]
    _, stream, device = normed[1:]
    assert all("x (" in cell for cell in stream[1:]) and device[1:] == ["–", "–"]
    assert "- scaled: no kernel ran, but the reference: cuda (exact): x is on cpu" in text
    assert "](../../docs/results.md)" in text and "](../../docs/results/ours_speedup.svg)" in text
    assert "not judged: 1 of copy_contiguous" in (swept / "docs" / "results.md").read_text()
    drawing = ElementTree.parse(swept / "docs" / "results" / "ours_speedup.svg")
    told = [title.text or "" for title in drawing.iter("{http://www.w3.org/2000/svg}title")]
    assert sum(text.startswith(("normed, ", "scaled, ")) for text in told) == 3


def test_the_field_has_no_part_in_it(swept_ops: Path) -> None:
    task = load_task(swept_ops / "tasks" / "ours")
    assert Field.gathered(Ledger(swept_ops / "ledger"), [task], "eager", "cpu", "smoke").standings == {}


def test_a_record_of_another_task_is_stale(swept_ops: Path, swept: Path) -> None:
    file = swept / "tasks" / "ours" / "task.toml"
    file.write_text(file.read_text().replace("block_ms = 1.0", "block_ms = 1.1"))
    results = Results.gathered(Ledger(swept_ops / "ledger"), [load_task(file.parent)], "cpu", "smoke")
    assert results.standings == {} and len(results.stale) == 3
    assert {told.rpartition(", run ")[2] for told in results.stale} <= set(Ledger(swept_ops / "ledger").runs())
    assert call(swept_ops).exit_code == 0, "what there is to say can be written"
    assert call(swept_ops, "--check").exit_code == 1, "and still it is stale"


def test_a_changed_source_marks_its_records(swept_ops: Path, swept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert call(swept_ops).exit_code == 0
    assert "†" not in (swept / "docs" / "results.md").read_text()
    monkeypatch.setattr(Shipped, "digest", "another")
    assert call(swept_ops, "--check").exit_code == 1
    assert call(swept_ops).exit_code == 0
    assert "† 3 of 3 records" in (swept / "docs" / "results.md").read_text()
    assert call(swept_ops, "--check").exit_code == 0


@pytest.mark.parametrize("damage", ["edited", "removed"])
def test_a_ledger_that_is_not_what_was_written_makes_no_page(swept_ops: Path, swept: Path, damage: str) -> None:
    """Pages made of it anew would agree with it, and so would those from which a run has gone."""
    ledger = shutil.copytree(swept_ops / "ledger", swept / "ledger")
    words = ["results", "--ledger", str(ledger), "--device", "cpu"]
    assert CliRunner().invoke(app, words).exit_code == 0
    assert CliRunner().invoke(app, [*words, "--check"]).exit_code == 0
    run = next(file for file in sorted((ledger / "runs").iterdir()) if '"ratio":' in file.read_text())
    if damage == "edited":
        run.write_text(run.read_text().replace('"ratio":', '"ratio":9', 1))
    else:
        run.unlink()
    pages = {page: page.read_text() for page in swept.rglob("*.md")}
    refused = CliRunner().invoke(app, words)
    assert isinstance(refused.exception, LedgerError) and "is not what was written" in refused.exception.cause
    assert "ledger verify" in refused.exception.remedy
    found = CliRunner().invoke(app, [*words, "--check"])
    assert found.exit_code == 1 and "ledger is not what was written: " in found.output and run.stem in found.output
    assert {page: page.read_text() for page in swept.rglob("*.md")} == pages


def test_a_ledger_without_records_makes_no_page(tmp_path: Path, swept: Path) -> None:
    result = CliRunner().invoke(app, ["results", "--ledger", str(tmp_path / "none"), "--device", "cpu"])
    assert isinstance(result.exception, KernwrightError) and "no verdict of a sweep" in str(result.exception)


# Figures, of records that are made up


def metric(ratio: float, us: float, spread: float = 0.01) -> MetricResult:
    interval = (ratio * (1 - spread), ratio * (1 + spread))
    return MetricResult(
        ratio=ratio, interval=interval, noise_band=0.01, baseline_us=ratio * us, candidate_us=us, quads=8,
        outcome="same",
    )  # fmt: skip


@lru_cache
def known_task(name: str) -> Task:
    return find_task(name)


H200 = {"kind": "cuda", "model": "NVIDIA H200"}


class Made:
    """Results as a ledger would give them, of which some tasks are asked."""

    def __init__(self, *names: str) -> None:
        self.tasks = [known_task(name) for name in names]
        self.standings: dict[tuple[str, str, str], Standing] = {}

    @property
    def results(self) -> Results:
        return Results(self.tasks, "cuda", "production", dict(self.standings))

    @staticmethod
    @lru_cache
    def run(task: str, baseline: str) -> Verdict:
        digests = {
            "candidate_digest": Shipped(()).digest,
            "baseline_digest": find_baseline(known_task(task), baseline).digest,
        }
        about = {"hardware": H200, "libraries": {"torch": version("torch")}, "finished": "today"}
        return Verdict.model_construct(task=task, baseline=baseline, rows=(), provenance=about, **digests)

    def rows(self, *ops: str) -> list[tuple[Task, Workload]]:
        return [(task, row) for task in self.tasks for row in task.select("production") if row.op in ops]

    def add(self, task: Task, row: Workload, baseline: str, fastest_copy_us: float = 10.0, **more: Any) -> None:
        own: dict[str, Any] = {
            "verdict": "same",
            "cases": 3,
            "fastest_copy_us": fastest_copy_us,
            "bytes_min": row.bytes_min,
            **more,
        }
        verdict = RowVerdict(id=row.id, op=row.op, **own)
        self.standings[task.name, row.id, baseline] = Standing(verdict, self.run(task.name, baseline))

    def fill(self, *baselines: str, **more: Any) -> None:
        """Every production row that has no standing yet."""
        given = {"metrics": {name: metric(1.2, 30.0) for name in METRICS}, **more}
        for task in self.tasks:
            for row in task.select("production"):
                for baseline in baselines:
                    if (task.name, row.id, baseline) not in self.standings:
                        self.add(task, row, baseline, **given)

    def bars(self, results: Results | None = None) -> list[Bar]:
        return bars_of(results or self.results, [task.name for task in self.tasks])

    def bar(self, words: str, asked: str = "") -> Bar:
        (found,) = (bar for bar in self.bars() if words in bar.figure and asked in bar.asked)
        return found


def geomean(values: list[float]) -> float:
    return math.exp(statistics.fmean(math.log(value) for value in values))


@pytest.mark.parametrize(("factor", "met"), [(2.6, True), (2.4, False)])
def test_small_rows_are_those_of_few_tokens_and_one_foreign_call_is_apart(factor: float, met: bool) -> None:
    made = Made("norm_scale_shift", "residual_gate_add")
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


def test_the_best_peer_is_the_one_that_we_gain_least_on() -> None:
    made = Made("fuse_scale_shift")
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
        (0.965, 30.0, 0.01, False),  # its interval reaches over the limit
        (0.95, 9.0, 0.001, True),  # 0.45 us
        (0.95, 5.0, 0.001, False),  # 0.25 us is the clock's
        (1.2, 5.0, 0.01, False),
    ],
)
def test_a_clear_loss_is_a_whole_interval_or_more_than_the_clocks_own(
    ratio: float, us: float, spread: float, clearly: bool
) -> None:
    assert loses_clearly(metric(ratio, us, spread)) is clearly
    made = Made("fuse_scale_shift")
    made.add(*made.rows("scale_shift")[0], PEER, metrics={name: metric(ratio, us, spread) for name in METRICS})
    made.fill(*PEERS)
    assert made.bar("whole interval").met is not clearly


def test_a_clear_loss_may_be_to_another_than_the_one_that_is_gained_least_on() -> None:
    made = Made("fuse_scale_shift")
    row = made.rows("scale_shift")[0]
    made.add(*row, PEER, metrics={name: metric(0.90, 30.0, 0.2) for name in METRICS})  # its interval reaches over 1
    made.add(*row, "compile", metrics={name: metric(0.95, 30.0, 0.01) for name in METRICS})
    made.fill(*PEERS)
    bar = made.bar("whole interval")
    assert bar.met is False and f"{row[1].id} wall 0.950x of compile" in bar.measured


def test_means_are_of_rows_that_move_alike() -> None:
    """As the field's are: rows as captured, and those that one shift row was frozen for, differ in traffic."""
    made = Made("fuse_scale_shift")
    for task, row in made.rows("scale_shift", *SELECTING):
        ratio = 8.0 if row.id.startswith("rowmod_") else 2.0
        made.add(task, row, PEER, metrics={name: metric(ratio, 10.0) for name in METRICS})
    first, *_ = made.rows("scale_shift")
    made.add(*first, "eager", metrics={})
    summary = Path("docs/results.md")
    for page in (summary, first[0].folder / "RESULTS.md"):
        text = files_of(made.results, summary, "made up")[page]
        lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| fuse_scale_shift |")]
        means = {cells[1]: cells[3:7] for cells in lines if cells[2] == PEER}
        assert means["scale_shift of x bf16, shift bf16"] == ["11 of 11", "2.00x", "2.00x", "2.00x"]
        assert means["scale_shift of x bf16"] == ["15 of 15", "8.00x", "8.00x", "8.00x"]
        assert {mean[-1] for mean in means.values()} == {"2.00x", "8.00x"}, "none is of both"
        assert sum(int(count.partition(" ")[0]) for count, *_ in means.values()) == 31
        assert [cells[1:4] for cells in lines if cells[2] == "eager"] == [
            ["scale_shift of x bf16, shift bf16", "eager", "0 of 11"]
        ], "a kind that was not judged against it has no line"


def test_shares_of_a_copy_are_those_of_large_rows() -> None:
    made = Made("fuse_scale_shift")
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
    made = Made("fuse_scale_shift")
    first, second, *_ = made.rows("scale_shift")
    made.add(*first, PEER, verdict="failed", cases=0, reasons=("the baseline declines: too wide",))
    made.add(*second, PEER, verdict="same", metrics={"device": metric(1.1, 30.0)})
    made.add(*first, "eager", metrics={"device": metric(1.1, 30.0)})
    made.fill(PEER)
    assert made.bar("incorrect or failed").met
    page = files_of(made.results, Path("docs/results.md"), "made up")[first[0].folder / "RESULTS.md"]
    assert f"- {PEER}: failed: the baseline declines: too wide ({first[1].id})" in page
    made.add(*second, "eager", verdict="incorrect", reasons=("y differs",))
    assert made.bar("incorrect or failed").met is False and made.bar("bits").met is False
    made.add(*second, "eager", verdict="failed", cases=0, reasons=("hung: no answer within 120 s",))
    assert made.bar("incorrect or failed").met is False


def test_rows_of_a_grid_count_for_bits_and_for_nothing_else() -> None:
    made = Made("fuse_scale_shift")
    task, row = made.rows("scale_shift")[0]
    made.add(task, row, "eager", metrics={"device": metric(1.1, 30.0)})
    results = made.results
    standing = results.standings[task.name, row.id, "eager"]
    for number in range(sum(grid.size for grid in task.grids if grid.op == "scale_shift")):
        right = standing.row.model_copy(update={"id": f"g{number}"})
        results.grid[task.name, right.id, "eager"] = Standing(right, standing.run)
    bits = next(bar for bar in made.bars(results) if "bits" in bar.figure)
    assert bits.verdict == "not all judged: 2209 of 2237"
    for _, other in made.rows("scale_shift"):
        made.add(task, other, "eager")
    results.standings = dict(made.standings)
    assert next(bar for bar in made.bars(results) if "bits" in bar.figure).verdict == "met"
    wrong = results.standings[task.name, row.id, "eager"].row.model_copy(update={"id": "g0", "verdict": "incorrect"})
    results.grid[task.name, "g0", "eager"] = Standing(wrong, standing.run)
    bits = next(bar for bar in made.bars(results) if "bits" in bar.figure)
    assert bits.met is False
    assert bits.measured == "29 of 29 rows, 2208 of 2208 of grids, 6711 cases; not equal: g0"
    assert "g0" not in files_of(results, Path("docs/results.md"), "made up")[task.folder / "RESULTS.md"]


def test_pages_of_ones_own_leave_the_checkouts_alone(tmp_path: Path) -> None:
    made = Made("fuse_scale_shift")
    task, row = made.rows("scale_shift")[0]
    made.add(task, row, PEER, metrics={"device": metric(1.1, 30.0)})
    own = tmp_path / "mine.md"
    files = files_of(made.results, own, "made up")
    assert all(path.is_relative_to(tmp_path) for path in files)
    assert "(mine/fuse_scale_shift.md)" in files[own]
    assert "(../mine.md)" in files[tmp_path / "mine" / "fuse_scale_shift.md"]


def test_rows_that_lose_stay_visible() -> None:
    made = Made("fuse_scale_shift")
    task, row = made.rows("scale_shift")[0]
    made.add(task, row, PEER, metrics={"wall": metric(2.0, 30.0), "device": metric(0.9, 30.0)})
    files = files_of(made.results, Path("docs/results.md"), "made up")
    for path in (Path("docs/results.md"), task.folder / "RESULTS.md"):
        assert f"{row.id}, device against {PEER}: 27.0 us, ours 30.0 us, **0.90x (0.89–0.91)**, clearly" in files[path]


def test_kda_pilots_rows_are_ours_and_stand_beside_ours() -> None:
    known = {family: {row.id for row in find_task(family).rows} for family in {row.family for row in kda_pilot().rows}}
    assert all(row.row in known[row.family] for row in kda_pilot().rows)
    made = Made("norm_scale_shift")
    task, row = next(pair for pair in made.rows("norm_scale_shift") if pair[1].id == "plain_s1004_d4096_row-bf16")
    made.add(task, row, "sglang@0.5.12.post1", metrics={"stream": metric(3.0, 9.0)})
    files = files_of(made.results, Path("docs/results.md"), "made up")
    (line,) = (line for line in files[task.folder / "RESULTS.md"].splitlines() if "event_amplified |" in line)
    assert "| 27.2 | 1.87x | stream | 9.00 | 3.00x (2.97–3.03) of sglang@0.5.12.post1 | – |" in line
    assert "| 1 | 1.87x | stream against sglang@0.5.12.post1 | 3.00x |" in files[Path("docs/results.md")]


def test_tokens_are_rows_of_channels() -> None:
    rows = {row.id: row for row in find_task("norm_infer").rows}
    assert tokens_of(rows["rms_hunyuan_1320x128"]) == 1320
    in_place = {row.id: row for row in find_task("add_norm").rows}
    assert tokens_of(in_place["derived_llama-3.1-8b_s64"]) == 64, "which gives nothing, and changes 64"


# What may be believed


def test_a_foreign_folder_of_our_name_is_not_ours(swept_ops: Path, tmp_path: Path) -> None:
    task = load_task(swept_ops / "tasks" / "ours")
    bodies = [record.body for record in Ledger(swept_ops / "ledger").all_records() if record.kind == "verdict"]
    foreign = json.loads(json.dumps(bodies))
    for body in foreign:
        body["provenance"]["contender"] = {}  # as the judge writes it of a candidate's folder
    assert len(gathered(task, bodies).standings) == 3
    assert gathered(task, foreign).standings == {}


def gathered(task: Task, bodies: list[dict[str, Any]], *more: Any) -> Results:
    records = [SimpleNamespace(kind="verdict", body=body, run="a run") for body in bodies]
    ledger: Any = SimpleNamespace(all_records=lambda: records)
    return Results.gathered(ledger, [task], "cpu", "smoke", *more)


@pytest.mark.parametrize("verdict", ["incorrect", "tampered", "failed"])
def test_a_time_of_wrong_work_is_no_time_and_the_row_stays_visible(verdict: Any) -> None:
    made = Made("fuse_scale_shift")
    first, second, *_ = made.rows("scale_shift")
    times = {name: metric(9.0, 5.0) for name in METRICS}
    made.add(*first, PEER, verdict=verdict, reasons=("y differs",), metrics=times)
    made.add(*second, PEER, metrics={name: metric(1.5, 30.0) for name in METRICS})
    results = made.results
    assert results.result(*first, PEER, "device") is None and results.share_of_copy(*first) is None
    assert results.best_peer(*first, "device") is None
    assert made.bar("wall, all rows").measured.startswith("1.500x over 1 of ")
    files = files_of(results, Path("docs/results.md"), "made up")
    page = files[first[0].folder / "RESULTS.md"]
    assert f"| {first[1].id} | {verdict} |" in page and "9.00x" not in "".join(files.values())
    assert f"- {PEER}: {verdict}: y differs ({first[1].id})" in page
    assert "| scale_shift of x bf16, shift bf16 | sglang@0.5.23 | 1 of 11 | 1.50x | 1.50x | 1.50x |" in page


def test_no_bar_is_met_before_every_row_of_every_task_was_judged() -> None:
    made = Made(*ASKED_OF)
    made.fill(*PEERS, metrics={name: metric(3.0, 30.0) for name in METRICS}, fastest_copy_us=29.0)
    results = made.results
    bars = bars_of(results)
    assert [bar.verdict for bar in bars if "bits" not in bar.figure] == ["met"] * (len(bars) - 1)
    (bits,) = (bar for bar in bars if "bits" in bar.figure)
    exact = sum(task.op_of(row).contract == "exact" for task in made.tasks for row in task.select("production"))
    in_grids = sum(grid.size for task in made.tasks for grid in task.grids if task.ops[grid.op].contract == "exact")
    assert bits.verdict == f"not all judged: {exact} of {exact + in_grids}" and in_grids, "the grids were not"
    rows = sum(len(task.select("production")) for task in made.tasks)
    row = made.rows("scale_shift")[0][1]
    large = next(row for task, row in made.rows("scale_shift") if row.bytes_min >= 100e6)
    for key in [key for key in results.standings if key[1] in (row.id, large.id)]:
        del results.standings[key]
    for bar in bars_of(results):
        if "tokens or fewer" in bar.figure or "reduction" in bar.figure or "one tvm-ffi" in bar.figure:
            continue  # asked of other rows
        assert bar.met is None and bar.verdict == f"not all judged: {bar.judged} of {bar.rows}", bar.figure
    judged = rows - len({row.id, large.id})
    assert first_bar(results, "wall, all rows").verdict == f"not all judged: {judged} of {rows}"
    few = Made("fuse_scale_shift")
    few.fill(*PEERS, metrics={name: metric(3.0, 30.0) for name in METRICS}, fastest_copy_us=29.0)
    assert not any(bar.met for bar in bars_of(few.results)), "of seven tasks nothing is known"
    assert "and 7 tasks are not here" in first_bar(few.results, "wall, all rows").verdict


def first_bar(results: Results, words: str) -> Bar:
    return next(bar for bar in bars_of(results) if words in bar.figure)


def test_rows_of_older_sources_are_not_judged_and_one_bad_row_settles_what_is_asked_of_each() -> None:
    made = Made("fuse_scale_shift")
    made.fill(*PEERS)
    assert made.bar("whole interval").verdict == "met"
    (task, row), (_, other), *_ = made.rows("scale_shift")
    key = task.name, row.id, "compile"
    old = made.run(task.name, "compile").model_copy(update={"candidate_digest": "older"})
    made.standings[key] = Standing(made.standings[key].row, old)
    assert made.bar("whole interval").verdict == "not all judged: 30 of 31"
    assert made.bar("wall, all rows").met is not None, "against the peer all were"
    made.add(task, other, "eager", metrics={name: metric(0.5, 30.0) for name in METRICS})
    assert made.bar("whole interval").verdict == "not all judged: 30 of 31; missed already"


def test_figures_that_the_judge_does_not_measure_say_where_they_come_from() -> None:
    made = Made("fuse_scale_shift")
    made.fill(PEER)
    text = files_of(made.results, Path("docs/results.md"), "made up")[Path("docs/results.md")]
    assert "`python benchmarks/bench_ops.py`" in text and "first call" in text and "host's time" in text


def test_a_changed_baseline_makes_its_records_old_and_the_check_fails(swept_ops: Path, swept: Path) -> None:
    assert call(swept_ops).exit_code == 0
    adapters = swept / "tasks" / "ours" / "baselines.py"
    adapters.write_text(adapters.read_text() + "# changed\n")
    assert call(swept_ops).exit_code == 0
    assert "† 1 of 3 records" in (swept / "docs" / "results.md").read_text()
    found = call(swept_ops, "--check")
    assert found.exit_code == 1 and "stale, of another baseline than today's: ours: normed against slow" in found.output
    stale = [line for line in found.output.splitlines() if line.startswith("stale, ")]
    assert {line.rpartition(", run ")[2] for line in stale} <= set(Ledger(swept_ops / "ledger").runs())


def test_torch_of_another_machine_is_no_changed_baseline(swept_ops: Path) -> None:
    task = load_task(swept_ops / "tasks" / "ours")
    bodies = [record.body for record in Ledger(swept_ops / "ledger").all_records() if record.kind == "verdict"]
    elsewhere = json.loads(json.dumps([body for body in bodies if body["baseline"] == "eager"]))
    digest = find_baseline(task, "eager").model_copy(update={"version": "9.9+cu999"}).digest
    for body in elsewhere:
        body["provenance"]["libraries"]["torch"], body["baseline_digest"] = "9.9+cu999", digest
    results = gathered(task, elsewhere)
    assert results.stale == [] and all(results.is_current(standing) for standing in results.standings.values())


def test_the_page_names_what_its_own_records_ran_with_and_one_model_only(swept_ops: Path) -> None:
    task = load_task(swept_ops / "tasks" / "ours")
    bodies = [record.body for record in Ledger(swept_ops / "ledger").all_records() if record.kind == "verdict"]
    older = json.loads(json.dumps(bodies))
    for body in older:
        body["provenance"]["libraries"]["triton"] = "0.0.1"
    results = gathered(task, older + bodies)
    assert len(results.machines) == 1 and "triton 0.0.1" not in results.machines[0]
    assert len(gathered(task, bodies + older[:1]).machines) == 2, "each set of versions that is shown"
    older[0]["provenance"]["hardware"]["model"] = "another"
    with pytest.raises(KernwrightError, match=r"of 2 models: .*another") as refused:
        gathered(task, bodies + older[:1])
    assert "--model" in str(refused.value.remedy)
    assert gathered(task, bodies + older[:1], "another").machines[0].startswith("another: ")


def test_a_page_that_the_ledger_does_not_make_is_found_out_and_stays_until_it_is_pruned(
    swept_ops: Path, swept: Path
) -> None:
    assert call(swept_ops).exit_code == 0
    other = swept / "docs" / "field.md"
    other.write_text("Generated from a ledger by `kernwright results --ledger theirs`; no number.\n")
    plot = swept / "docs" / "results" / "gone_wall.svg"
    plot.write_text("<svg/>")
    found = call(swept_ops, "--check")
    assert found.exit_code == 1
    assert all(f"{name} has no record in the ledger" in found.output for name in ("field.md", "gone_wall.svg"))
    assert call(swept_ops).exit_code == 0 and other.is_file() and plot.is_file()
    assert call(swept_ops, "--prune").exit_code == 0 and not other.exists() and not plot.exists()
    assert call(swept_ops, "--check").exit_code == 0
    other.write_text("Somebody's own words.\n")
    assert call(swept_ops, "--prune").exit_code == 0 and other.is_file(), "no ledger made it"
    other.unlink()
    empty = ["results", "--ledger", str(swept / "none"), "--device", "cpu", "--check"]
    assert CliRunner().invoke(app, empty).exit_code == 1, "the pages are there, and no record of them"


def test_a_page_of_another_choice_is_not_overwritten(swept_ops: Path, swept: Path) -> None:
    assert call(swept_ops).exit_code == 0
    page = swept / "tasks" / "ours" / "RESULTS.md"
    text = page.read_text()
    refused = call(swept_ops, "--rows", "normed")
    assert isinstance(refused.exception, KernwrightError) and "--prune" in str(refused.exception.remedy)
    assert page.read_text() == text
    assert call(swept_ops, "--rows", "normed", "--prune").exit_code == 0
    assert "--rows normed" in page.read_text()
