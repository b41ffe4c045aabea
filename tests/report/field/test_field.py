"""The field's page: made from a ledger alone, and an altered page is detected."""

from __future__ import annotations

import shutil
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from kernwright.baselines.lookup import Surroundings, find_baseline
from kernwright.campaign.sweep import Sweep, legs_of
from kernwright.cli.main import app
from kernwright.core.errors import KernwrightError
from kernwright.judge.record.verdict import MetricResult, RowVerdict, Verdict
from kernwright.ledger.ledger import Ledger
from kernwright.report.current_baselines import CurrentBaselines
from kernwright.report.field.field import Field, Standing
from kernwright.report.field.page import field_files
from kernwright.report.field.plots import copy_plot, plots_of, speedup_plot
from kernwright.tasks import catalog
from kernwright.tasks.catalog import find_task
from kernwright.tasks.policy import METRICS
from kernwright.tasks.task import Task, load_task
from kernwright.tasks.workload import Workload

# The sweep measures: next to other work on the machine a row may end without a time.
pytestmark = [pytest.mark.slow, pytest.mark.clock]

BASELINES = """
def slow(op):
    def run(x):
        for _ in range(40):
            y = x + x
        return y
    return run

def never(op):
    def run(x):
        raise RuntimeError("not here")
    return run
"""


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory, write_doubling: Callable[..., Path], quiet: Any) -> Path:
    """A real sweep of a small task: eager against itself, a slow contender, and one that cannot run."""
    root = tmp_path_factory.mktemp("field")
    folder = write_doubling(root / "tasks" / "tiny", 64, 80, tokens=64, baselines=BASELINES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNWRIGHT_LOCKS", str(root))
        legs = list(legs_of([load_task(folder)], "eager", ["eager", "slow", "never"]))
        list(Sweep(legs=legs, rows="smoke", device="cpu", ledger=root / "ledger", wait_s=60.0).run(quiet))
    return root


@pytest.fixture
def task(swept: Path) -> Task:
    return load_task(swept / "tasks" / "tiny")


def gathered(swept: Path, task: Task) -> Field:
    return Field.gathered(Ledger(swept / "ledger"), [task], "eager", "cpu", "smoke")


def text_of(field: Field) -> str:
    """Return the text of all pages of a field."""
    return "\n".join(text for path, text in field_files(field, Path("field.md"), "x").items() if path.suffix == ".md")


def bodies_in(swept: Path) -> list[dict[str, Any]]:
    return [record.body for record in Ledger(swept / "ledger").all_records() if record.kind == "verdict"]


def gathered_of(bodies: list[dict[str, Any]], task: Task, rows: str = "smoke") -> Field:
    """Return the field of a ledger that holds these verdicts, in this order."""
    records = [SimpleNamespace(kind="verdict", body=body, run="a run") for body in bodies]
    ledger: Any = SimpleNamespace(runs=lambda: ["a run"], records=lambda _: records, beside=Path("nowhere").joinpath)
    return Field.gathered(ledger, [task], "eager", "cpu", rows)


def test_every_contender_is_listed_on_every_row(swept: Path, task: Task) -> None:
    field = gathered(swept, task)
    assert field.contenders == ["never", "slow"]
    assert field.stale == []
    for row in field.wanted(task):
        slow, never = (field.standing(task, row, name) for name in ("slow", "never"))
        assert slow and 0 < slow.gain < 1, slow and slow.row
        assert never and never.row.verdict == "failed" and never.gain == 0
        assert field.best(task, row) is None, "nobody gains: the baseline itself is best"
    assert field.against_itself()[0] == 2
    mean = field.geomean(task, task.rows, "slow", "stream")
    assert mean is not None and mean[0] < 1 and mean[1] == 2
    assert field.geomean(task, task.rows, "never", "stream") is None


def test_the_time_of_a_common_judgement_counts_once(swept: Path, task: Task) -> None:
    field = gathered(swept, task)
    runs = {(run.provenance["started"], run.provenance["finished"]): run for run in field.runs()}
    assert len(runs) < len({run.candidate for run in field.runs()}), "some were judged together"
    spent = field.seconds_spent()
    assert spent["timing"] == pytest.approx(sum(run.provenance["seconds"]["timing"] for run in runs.values()))
    (line,) = (line for line in text_of(field).splitlines() if line.startswith("- Judging took"))
    assert f"timing {spent['timing'] / 60:.1f}" in line


def test_the_page_shows_times_ratios_and_reasons(swept: Path, task: Task) -> None:
    text = text_of(gathered(swept, task))
    _, cells = cells_of(text, "`r64`")
    assert cells[2] == "failed" and "x (" in cells[3] and cells[4] == "eager"
    assert "**" in cells[3], "slow is slower: its ratio is bold"
    (reason,) = (cells for cells in cells_of(text, "never") if cells[1] == "failed" and "r64" in cells[3])
    assert "not here" in reason[2]
    assert "`eager` against itself: 2 rows judged" in text


def cells_of(text: str, first: str) -> list[list[str]]:
    """Return the cells of the table lines that begin with one."""
    lines = [line.strip("|").split("|") for line in text.splitlines() if line.startswith(f"| {first} |")]
    return [[cell.strip() for cell in cells] for cells in lines]


def results(swept: Path, page: Path, *words: str) -> Result:
    command = [
        "results", "--ledger", str(swept / "ledger"), "--page", str(page), "--ours", str(page.with_name("ours.md")),
        "--device", "cpu", *words,
    ]  # fmt: skip
    return CliRunner().invoke(app, command)


def test_an_altered_page_is_detected(swept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "task_roots", lambda: [swept / "tasks"])
    page = tmp_path / "field.md"
    assert results(swept, page, "--check").exit_code == 1, "there is none yet"
    assert results(swept, page).exit_code == 0
    assert results(swept, page, "--check").exit_code == 0
    page.write_text(page.read_text().replace("failed", "faster"))
    assert results(swept, page, "--check").exit_code == 1


def test_an_altered_plot_is_detected_and_a_superfluous_one_is_removed(
    swept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "task_roots", lambda: [swept / "tasks"])
    page, plots = tmp_path / "field.md", tmp_path / "field"
    plots.mkdir()
    (plots / "gone_speedup.svg").write_text("<svg/>")
    (plots / "logo.svg").write_text("<svg/>")
    assert results(swept, page).exit_code == 0
    assert (plots / "gone_speedup.svg").is_file(), "until it is asked for"
    assert results(swept, page, "--check").exit_code == 1
    assert results(swept, page, "--prune").exit_code == 0
    assert sorted(path.name for path in plots.iterdir()) == [
        "logo.svg", "summary.svg", "tiny.md", "tiny_copy.svg", "tiny_speedup.svg",
    ]  # fmt: skip
    assert "](field/summary.svg)" in page.read_text() and "](tiny_speedup.svg)" in (plots / "tiny.md").read_text()
    assert results(swept, page, "--check").exit_code == 0
    plot = plots / "tiny_speedup.svg"
    plot.write_text(plot.read_text().replace("slow", "swift"))
    found = results(swept, page, "--check")
    assert found.exit_code == 1 and "tiny_speedup.svg and the ledger disagree" in found.output


def test_a_plot_has_a_mark_for_every_time_and_none_without(swept: Path, task: Task) -> None:
    for name, plot in plots_of(gathered(swept, task)).items():
        drawing = ElementTree.fromstring(plot)  # The plot is well-formed on its own: a page shows it as an image.
        told = [title.text for title in drawing.iter("{http://www.w3.org/2000/svg}title")]
        marks = [text for text in told if text and ", slow: " in text]
        assert len(marks) == 2 and any(text.startswith("r64, slow: ") for text in marks), name
        assert not any(text and ", never: " in text for text in told)


def test_a_faster_contender_lies_right_of_the_line(swept: Path, task: Task) -> None:
    """On the axis of ratios `slow` is left of 1."""
    field = gathered(swept, task)
    plot = ElementTree.fromstring(speedup_plot(field, task))
    svg = "{http://www.w3.org/2000/svg}"
    (unity,) = (line for line in plot.iter(f"{svg}line") if line.get("class") == "unity")
    marks = [group.find(f"{svg}path") for group in plot.iter(f"{svg}g") if group.find(f"{svg}title") is not None]
    places = [float(str(mark.get("transform")).split("(")[1].split(",")[0]) for mark in marks if mark is not None]
    assert len(places) == 2 and all(place < float(str(unity.get("x1"))) for place in places)


def test_a_ledger_without_a_sweep_makes_no_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The tasks of this checkout have their own pages.
    monkeypatch.setattr(catalog, "task_roots", lambda: [tmp_path / "tasks"])
    page, ledger = tmp_path / "field.md", tmp_path / "ledger"
    ledger.mkdir()
    for words in ([], ["--check"]):
        result = results(tmp_path, page, *words)
        assert isinstance(result.exception, KernwrightError) and "no verdict of a sweep" in str(result.exception)
    assert not page.exists() and not any(ledger.iterdir())


def test_a_contender_that_declines_a_row_has_not_failed(swept: Path, task: Task) -> None:
    field = gathered(swept, task)
    for (_, _, name), found in field.standings.items():
        if name == "never":
            reasons = ("the candidate declines: it runs the eager chain",)
            found[:] = [replace(s, row=s.row.model_copy(update={"reasons": reasons})) for s in found]
    text = text_of(field)
    _, cells = cells_of(text, "`r64`")
    assert cells[2] == "declined"
    assert ["never", "declined", "it runs the eager chain", "`r64`, `r80`"] in cells_of(text, "never")


def test_a_record_of_another_task_is_stale_and_not_used(swept: Path, tmp_path: Path) -> None:
    file = shutil.copytree(swept / "tasks" / "tiny", tmp_path / "tiny") / "task.toml"
    file.write_text(file.read_text().replace("block_ms = 1.0", "block_ms = 1.1"))
    changed = load_task(file.parent)
    field = gathered(swept, changed)
    assert field.standings == {}
    runs = [record.run for record in Ledger(swept / "ledger").all_records() if record.kind == "verdict"]
    assert sorted(told.rpartition(", run ")[2] for told in field.stale) == sorted(runs)


def test_a_record_of_a_changed_contender_is_stale_and_not_used(swept: Path, tmp_path: Path) -> None:
    adapters = shutil.copytree(swept / "tasks" / "tiny", tmp_path / "tiny") / "baselines.py"
    adapters.write_text(adapters.read_text().replace("range(40)", "range(41)"))
    field = gathered(swept, load_task(adapters.parent))
    assert {name for _, _, name in field.standings} == {"eager"}, "which no adapter makes"
    assert sorted(told.partition(",")[0] for told in field.stale) == [
        "of another never than today's: tiny: never",
        "of another slow than today's: tiny: slow",
    ]


@pytest.mark.parametrize("changed", ["task_digest", "baseline_digest", "candidate_digest"])
def test_a_stale_record_is_done_with_when_all_of_its_rows_are_judged_again(
    swept: Path, task: Task, changed: str
) -> None:
    (new,) = (body for body in bodies_in(swept) if body["candidate"] == "slow")
    old = new | {changed: "another"}
    part = new | {"rows": new["rows"][:1]}
    assert len(gathered_of([old], task).stale) == 1
    assert len(gathered_of([old, part], task).stale) == 1, "r80 is known from the old one alone"
    done = gathered_of([old, part, new], task)
    assert done.stale == [] and len(done.standings["tiny", "r64", "slow"]) == 2
    assert gathered_of([old, part], task, rows="r64").stale == [], "a page of r64 asks for no other"


def test_a_candidate_named_like_a_baseline_is_not_taken_for_it(swept: Path, task: Task) -> None:
    (body,) = (body for body in bodies_in(swept) if body["candidate"] == "slow")
    posing = body | {"provenance": body["provenance"] | {"sources": {"candidate.toml": "its hash"}}}
    for candidate in ("slow", "mine"):
        field = gathered_of([posing | {"candidate": candidate, "candidate_digest": "its own"}], task)
        assert field.standings == {} and field.stale == []


def test_a_package_of_another_machine_is_known_by_its_lock() -> None:
    """The package need not be fetched and need not fit this machine."""
    known, name = find_task("norm_scale_shift"), "sglang@0.5.23"
    digests = {}
    for architecture in ("x86_64", "aarch64"):
        about = {"hardware": {"architecture": architecture}, "libraries": {"python": "3.12.3", "torch": "9.9.9"}}
        digest = find_baseline(known, name, Surroundings.recorded(about)).digest
        verdict = Verdict.model_construct(task=known.name, candidate=name, candidate_digest=digest, provenance=about)
        assert CurrentBaselines([known]).hold_contender(verdict)
        assert not CurrentBaselines([known]).hold_contender(verdict.model_copy(update={"candidate_digest": "another"}))
        digests[architecture] = digest
    assert digests["x86_64"] != digests["aarch64"], "its companions are wheels of their own"


def test_tasks_without_such_rows_are_left_out_and_rows_of_no_task_are_an_error(
    swept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write_doubling: Callable[..., Path]
) -> None:
    shutil.copytree(swept / "tasks", tmp_path / "tasks")
    file = write_doubling(tmp_path / "tasks" / "unjudged", 16, prefix="other") / "task.toml"
    file.write_text(file.read_text().replace('name = "tiny"', 'name = "unjudged"'))
    monkeypatch.setattr(catalog, "task_roots", lambda: [tmp_path / "tasks"])
    page = tmp_path / "field.md"
    asked = ("--rows", "r6*")
    assert results(swept, page, *asked).exit_code == 0
    text = page.read_text() + (tmp_path / "field" / "tiny.md").read_text()
    assert "(field/tiny.md)" in text and "`r64`" in text and "r80" not in text and "unjudged" not in text
    assert "`eager` against itself: 1 rows judged" in text
    assert results(swept, page, "--check", *asked).exit_code == 0
    none = results(swept, page, "--check", "--rows", "nobody*")
    assert isinstance(none.exception, KernwrightError) and "no rows of any task match 'nobody*'" in str(none.exception)


def counted(field: Field) -> dict[str, tuple[int, int]]:
    """Return by contender how many rows one judge judged twice, and how many of them agree."""
    by_judge = field.repeats().judged_twice().values()
    found = [(name, own) for each in by_judge for name, own in each.items()]
    return {name: (len(own), sum(each.is_alike for each in own)) for name, own in found}


def test_rows_judged_twice_show_how_well_they_repeat(swept: Path, task: Task) -> None:
    field = gathered(swept, task)
    assert counted(field) == {}, "nothing was judged twice"
    key = ("tiny", "r64", "slow")
    (standing,) = field.standings[key]
    timed = standing.result("device") or standing.result("stream")
    assert timed is not None
    for times in ((20.0, 20.3), (20.0, 21.0)):
        field.standings[key] = [
            type(standing)(
                standing.row.model_copy(update={"metrics": {"device": timed.model_copy(update={"candidate_us": us})}}),
                Verdict.model_validate(standing.run.model_dump()),
            )
            for us in times
        ]
        alike = 1 if times[1] < 20.4 else 0
        assert counted(field) == {"slow": (1, alike)}
        assert f"within 2% of the first on slow {alike} of 1." in text_of(field)
    field.standings[key][0].run.provenance["hardware"] |= {"uuid": "another GPU"}
    assert counted(field) == {}, "of two GPUs, each was judged once"
    assert field.repeats().between_gpus() == {"slow": [pytest.approx(0.05)]}
    assert "slow: median 5.0% of 1 rows, largest 5.0%" in text_of(field)


def made_up(task: Task, ratios: Callable[[Workload], float]) -> Field:
    """Return a field with every production row: `fast` in 20 us, a copy in 10 us, and eager by the given ratio."""
    about = {"device": "cuda", "finished": "today", "policy": {"max_rounds": 2}, "libraries": {}, "started": "today"}
    about["hardware"] = {"kind": "cuda", "model": "a GPU"}
    run = Verdict.model_construct(task=task.name, baseline="eager", candidate="fast", provenance=about)
    field = Field(tasks=[task], baseline="eager", device="cuda", rows="production")
    for row in field.wanted(task):
        times = {name: metric(20.0, ratios(row)) for name in METRICS}
        verdict = RowVerdict(
            id=row.id, op=row.op, verdict="faster", metrics=times, bytes_min=row.bytes_min, fastest_copy_us=10.0
        )
        field.standings[task.name, row.id, "fast"] = [Standing(verdict, run)]
    return field


def metric(us: float, ratio: float = 1.0) -> MetricResult:
    return MetricResult(
        ratio=ratio, interval=(ratio, ratio), noise_band=0.01, baseline_us=ratio * us, candidate_us=us, quads=6,
        outcome="faster",
    )  # fmt: skip


def test_means_cover_rows_with_equal_traffic() -> None:
    """Rows as captured, and rows for which one shift row was frozen, have separate means: their traffic differs."""
    text = text_of(made_up(find_task("fuse_scale_shift"), lambda row: 8.0 if row.id.startswith("rowmod_") else 2.0))
    lines = [
        line.strip("| ").split(" | ")
        for line in text.splitlines()
        if "| fast | " in line and "of" in line.split(" | ")[2]
    ]
    means = {cells[0]: cells[2:6] for cells in lines}
    assert means["scale_shift of x bf16, shift bf16"] == ["11 of 11", "2.00x", "2.00x", "2.00x"]
    assert means["scale_shift of x bf16"] == ["15 of 15", "8.00x", "8.00x", "8.00x"]
    assert {mean[-1] for mean in means.values()} == {"2.00x", "8.00x"}, "none is of both"
    assert means["norm_scale_shift_select"][0] == "1 of 1"
    assert sum(int(count.partition(" ")[0]) for count, *_ in means.values()) == 31


def test_the_baseline_has_a_share_of_a_copy_too() -> None:
    text = text_of(made_up(find_task("qknorm_rope"), lambda _: 2.0))
    home, fast = cells_of(text, "`qwen_t19`")[1][1:3]
    assert home == "40.0 / 40.0 / 40.0, copy 25%"
    assert fast == "20.0 / 20.0 / 20.0, 2.00x (2.00–2.00), copy 50%"


def test_the_baseline_has_a_mark_among_the_shares_of_a_copy() -> None:
    task = find_task("qknorm_rope")
    field = made_up(task, lambda _: 2.0)
    drawing = ElementTree.fromstring(copy_plot(field, task))
    told = [title.text for title in drawing.iter("{http://www.w3.org/2000/svg}title")]
    assert "qwen_t19, fast: 50% of a copy" in told and "qwen_t19, eager: 25% of a copy" in told
    assert [text.text for text in drawing.iter("{http://www.w3.org/2000/svg}text")][1:3] == ["fast", "eager"], "legend"


def test_a_baseline_that_failed_against_itself_has_the_times_of_another_run() -> None:
    task = find_task("qknorm_rope")
    field = made_up(task, lambda _: 2.0)
    timed = field.standings[task.name, "qwen_t19", "fast"][-1]
    wrong = replace(timed, row=timed.row.model_copy(update={"verdict": "failed"}))
    field.standings[task.name, "qwen_t19", "eager"] = [wrong]
    assert field.home(task, "qwen_t19") is timed
    field.standings[task.name, "qwen_t19", "fast"] = [wrong]
    assert field.home(task, "qwen_t19") is wrong, "which says why there is none"


def test_rows_of_an_earlier_judge_are_marked(swept: Path, task: Task) -> None:
    field = gathered(swept, task)
    assert field.of_earlier_judges() == {}
    assert "earlier version" not in text_of(field)
    (standing,) = field.standings["tiny", "r64", "slow"]
    old = Verdict.model_validate(standing.run.model_dump())
    old.provenance.update(judge="of yesterday", finished="2026-01-01T00:00:00Z")
    for key, found in field.standings.items():
        if key[1] == "r64":
            field.standings[key] = [replace(found[-1], run=old), found[-1]]
    assert field.of_earlier_judges() == {}, "they were judged again since"
    field.standings["tiny", "r64", "never"].pop()
    assert field.of_earlier_judges() == {"tiny": 1}, "one contender is enough"
    assert "by an earlier version of the judge: 1 of tiny." in text_of(field)


def test_a_record_against_a_changed_baseline_is_not_used(swept: Path, task: Task) -> None:
    bodies = bodies_in(swept)
    changed = gathered_of([body | {"baseline_digest": "another"} for body in bodies], task)
    assert gathered(swept, task).standings and changed.standings == {}
    assert all(told.startswith("of another eager than today's: tiny: ") for told in changed.stale)
    assert len(changed.stale) == len(bodies)
