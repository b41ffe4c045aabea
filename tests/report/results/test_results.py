"""The results' pages: made from a ledger alone, altered pages are detected, and losses stay visible."""

from __future__ import annotations

import json
import re
import shutil
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from made_results import MadeResults, metric
from typer.testing import CliRunner, Result

from kernwright.baselines.lookup import find_baseline
from kernwright.baselines.shipped import Shipped
from kernwright.cli.main import app
from kernwright.core.errors import KernwrightError, LedgerError
from kernwright.ledger.ledger import Ledger
from kernwright.ledger.transfer import import_runs
from kernwright.report.field.field import Field
from kernwright.report.results.page import files_of
from kernwright.report.results.results import Results, tokens_of
from kernwright.report.results.summary import FamilySummary
from kernwright.tasks import catalog
from kernwright.tasks.catalog import find_task
from kernwright.tasks.policy import METRICS
from kernwright.tasks.task import Task, load_task

PEER = "sglang@0.5.23"
SELECTING = ("norm_scale_shift_select", "residual_norm_scale_shift_select")
PEERS = (PEER, "sglang@0.5.12.post1", "liger@0.8.5", "compile", "eager")


@pytest.fixture
def swept(swept_ops: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the swept tasks in a folder of their own, because pages are written into it."""
    shutil.copytree(swept_ops / "tasks", tmp_path / "tasks")
    monkeypatch.setattr(catalog, "task_roots", lambda: [tmp_path / "tasks"])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(swept_ops: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["results", "--ledger", str(swept_ops / "ledger"), "--device", "cpu", *words])


def test_packed_runs_make_the_same_pages_and_superseded_ones_are_left_out(swept_ops: Path, swept: Path) -> None:
    import_runs(swept / "ledger", swept_ops / "ledger")
    book = Ledger(swept / "ledger")
    older = next(run for run in book.runs() if book.records(run)[-1].kind == "verdict")
    with book.open_run({}) as again:
        again.append("verdict", book.records(older)[-1].body)
    assert call(swept).exit_code == 0
    pages = {path: path.read_text().replace("--ledger ledger", "") for path in swept.rglob("*.md")}
    done = call(swept, "--pack", "packed")
    assert done.exit_code == 0, done.output
    (left_out,) = (line for line in done.output.splitlines() if line.startswith("left out"))
    assert left_out.startswith(f"left out of ops.tar.xz: {older}: superseded: ")
    assert set(Ledger(swept / "packed").runs()) == set(book.runs()) - {older}
    words = ["results", "--ledger", "packed", "--device", "cpu", "--prune"]
    assert CliRunner().invoke(app, words).exit_code == 0
    assert {path: path.read_text().replace("--ledger packed", "") for path in pages} == pages
    assert CliRunner().invoke(app, [*words[:-1], "--check"]).exit_code == 0


def test_pages_are_written_and_an_altered_one_is_detected(swept_ops: Path, swept: Path) -> None:
    assert call(swept_ops, "--check").exit_code == 1, "there is none yet"
    assert call(swept_ops).exit_code == 0
    assert call(swept_ops, "--check").exit_code == 0
    summary, family = swept / "docs" / "results.md", swept / "docs" / "results" / "ours.md"
    assert not (swept / "docs" / "field.md").exists(), "the ops that ship are no part of the field"
    for page in (summary, family):
        text = page.read_text()
        page.write_text(text.replace("1", "2"))
        found = call(swept_ops, "--check")
        assert found.exit_code == 1 and f"{page.name} and the ledger disagree" in found.output.replace("\n", "")
        page.write_text(text)
    shutil.copy(family, family.with_name("theirs.md"))
    assert "has no record in the ledger" in call(swept_ops, "--check").output.replace("\n", " ")


def test_the_family_page_has_every_row_every_time_and_what_ran(swept_ops: Path, swept: Path) -> None:
    assert call(swept_ops).exit_code == 0
    text = (swept / "docs" / "results" / "ours.md").read_text()
    tables = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    normed = [[cell.strip() for cell in cells] for cells in tables if cells[0] == " `normed` "]
    inputs, kernels, device, stream, _ = normed
    assert inputs[1] == "`norm_scale_shift`" and "x: " in inputs[2]
    assert kernels[1:3] == ["close", "cpu (close)"] and "eager" in kernels[4] and "slow" in kernels[4]
    assert all("x (" in cell for cell in stream[1:]) and device[1:] == ["–", "–"]
    assert re.search(r"- scaled: .*cuda \(exact\): x is on cpu", text)
    assert "](../results.md)" in text and "](ours_speedup.svg)" in text
    assert "not judged: 1 of copy_contiguous" in (swept / "docs" / "results.md").read_text()
    drawing = ElementTree.parse(swept / "docs" / "results" / "ours_speedup.svg")
    told = [title.text or "" for title in drawing.iter("{http://www.w3.org/2000/svg}title")]
    assert sum(text.startswith(("normed, ", "scaled, ")) for text in told) == 3


def test_the_results_do_not_depend_on_the_field(swept_ops: Path) -> None:
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
def test_an_altered_ledger_makes_no_page(swept_ops: Path, swept: Path, damage: str) -> None:
    """A page made anew from an altered ledger would agree with it, and so would one from a ledger without one of its
    runs."""
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
    assert isinstance(refused.exception, LedgerError) and "is damaged" in refused.exception.cause
    assert "ledger verify" in refused.exception.remedy
    found = CliRunner().invoke(app, [*words, "--check"])
    assert found.exit_code == 1 and "ledger is damaged: " in found.output and run.stem in found.output
    assert {page: page.read_text() for page in swept.rglob("*.md")} == pages


def test_a_ledger_without_records_makes_no_page(tmp_path: Path, swept: Path) -> None:
    result = CliRunner().invoke(app, ["results", "--ledger", str(tmp_path), "--device", "cpu"])
    assert isinstance(result.exception, KernwrightError) and "no verdict of a sweep" in str(result.exception)


# Figures of made-up records.


def test_means_cover_rows_with_equal_traffic() -> None:
    """Rows as captured, and rows for which one shift row was frozen, have separate means: their traffic differs."""
    made = MadeResults("fuse_scale_shift")
    for task, row in made.rows("scale_shift", *SELECTING):
        ratio = 8.0 if row.id.startswith("rowmod_") else 2.0
        made.add(task, row, PEER, metrics={name: metric(ratio, 10.0) for name in METRICS})
    first, *_ = made.rows("scale_shift")
    made.add(*first, "eager", metrics={})
    summary = Path("docs/results.md")
    text = files_of(made.results, summary, "made up")[Path("docs/results/fuse_scale_shift.md")]
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if " of x bf16" in line or "_select |" in line]
    means = {cells[0]: cells[2:6] for cells in lines if cells[1] == PEER}
    assert means["scale_shift of x bf16, shift bf16"] == ["11 of 11", "2.00x", "2.00x", "2.00x"]
    assert means["scale_shift of x bf16"] == ["15 of 15", "8.00x", "8.00x", "8.00x"]
    assert {mean[-1] for mean in means.values()} == {"2.00x", "8.00x"}, "none is of both"
    assert sum(int(count.partition(" ")[0]) for count, *_ in means.values()) == 31
    assert [cells[:3] for cells in lines if cells[1] == "eager"] == [
        ["scale_shift of x bf16, shift bf16", "eager", "0 of 11"]
    ], "a kind that was not judged against it has no line"


def test_pages_of_a_users_own_leave_the_checkouts_alone(tmp_path: Path) -> None:
    made = MadeResults("fuse_scale_shift")
    task, row = made.rows("scale_shift")[0]
    made.add(task, row, PEER, metrics={"device": metric(1.1, 30.0)})
    own = tmp_path / "mine.md"
    files = files_of(made.results, own, "made up")
    assert all(path.is_relative_to(tmp_path) for path in files)
    assert "(mine/fuse_scale_shift.md)" in files[own]
    assert "(../mine.md)" in files[tmp_path / "mine" / "fuse_scale_shift.md"]


def test_rows_that_lose_stay_visible() -> None:
    made = MadeResults("fuse_scale_shift")
    task, row = made.rows("scale_shift")[0]
    made.add(task, row, PEER, metrics={"wall": metric(2.0, 30.0), "device": metric(0.9, 30.0)})
    files = files_of(made.results, Path("docs/results.md"), "made up")
    for path in (Path("docs/results.md"), Path("docs/results/fuse_scale_shift.md")):
        assert f"`{row.id}` | device | {PEER} | yes | 27.0 | 30.0 | **0.90x (0.89–0.91)** |" in files[path]
    own = FamilySummary.of(made.results, task)
    assert own.losing == 1 and own.over_best == {"wall": pytest.approx(2.0), "device": pytest.approx(0.9)}
    assert own.own_share == pytest.approx(10 / 30) and own.peer_share == pytest.approx(10 / 27)


def test_every_printed_ratio_under_one_is_bold() -> None:
    made = MadeResults("fuse_scale_shift")
    for number, (task, row) in enumerate(made.rows("scale_shift")):
        made.add(task, row, PEER, metrics={name: metric(0.90 + number / 100, 30.0, 0.2) for name in METRICS})
    files = files_of(made.results, Path("docs/results.md"), "made up")
    assert "**0.90x (" in files[Path("docs/results/fuse_scale_shift.md")]
    for path, text in files.items():
        if path.suffix == ".md":
            assert not re.search(r"(?<![*\d.])0\.\d\dx", text), path


def test_tokens_are_rows_of_channels() -> None:
    rows = {row.id: row for row in find_task("norm_infer").rows}
    assert tokens_of(rows["rms_hunyuan_1320x128"]) == 1320
    in_place = {row.id: row for row in find_task("add_norm").rows}
    assert tokens_of(in_place["derived_llama-3.1-8b_s64"]) == 64, "which gives nothing, and changes 64"


# Which records may be used.


def test_a_foreign_folder_of_our_name_is_not_ours(swept_ops: Path, tmp_path: Path) -> None:
    task = load_task(swept_ops / "tasks" / "ours")
    bodies = [record.body for record in Ledger(swept_ops / "ledger").all_records() if record.kind == "verdict"]
    foreign = json.loads(json.dumps(bodies))
    for body in foreign:
        body["provenance"]["contender"] = {}  # as the judge writes it for a candidate's folder
    assert len(gathered(task, bodies).standings) == 3
    assert gathered(task, foreign).standings == {}


def gathered(task: Task, bodies: list[dict[str, Any]], *more: Any) -> Results:
    records = [SimpleNamespace(kind="verdict", body=body, run="a run") for body in bodies]
    ledger: Any = SimpleNamespace(runs=lambda: ["a run"], records=lambda _: records, beside=Path("nowhere").joinpath)
    return Results.gathered(ledger, [task], "cpu", "smoke", *more)


def test_a_changed_baseline_makes_its_records_stale_and_the_check_fails(swept_ops: Path, swept: Path) -> None:
    assert call(swept_ops).exit_code == 0
    adapters = swept / "tasks" / "ours" / "baselines.py"
    adapters.write_text(adapters.read_text() + "CHANGED = True\n")
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


def test_a_superfluous_page_is_reported_and_stays_until_it_is_pruned(swept_ops: Path, swept: Path) -> None:
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
    page = swept / "docs" / "results" / "ours.md"
    text = page.read_text()
    refused = call(swept_ops, "--rows", "normed")
    assert isinstance(refused.exception, KernwrightError) and "--prune" in str(refused.exception.remedy)
    assert page.read_text() == text
    assert call(swept_ops, "--rows", "normed", "--prune").exit_code == 0
    assert "--rows normed" in page.read_text()
