"""The HTML page, read back with a parser that does not know the template."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
import typer
from test_verdict_plots import a_result, a_row
from typer.testing import CliRunner

from kernwright.cli.records.report import report
from kernwright.core.errors import EnvironmentProblem, LedgerError
from kernwright.judge.record.verdict import Headline, Outcome, RowVerdict, Verdict
from kernwright.ledger.ledger import Ledger
from kernwright.report import verdict_page as page_module
from kernwright.report.verdict_page import render_page, repeating_command, write_page

VOID = {"meta", "br", "link", "img", "hr"}
NO_LOOP = "no loop without Python for 'this' pair"
HEADLINE = Headline(
    geomean=1.436, interval=(1.421, 1.452), noise_band=0.011, worst_row="r0", worst_ratio=0.861, rows=2
)  # fmt: skip


def a_verdict(rows: tuple[RowVerdict, ...] = (), **more: object) -> Verdict:
    fields: dict[str, object] = {
        "task": "norm", "task_digest": "a1" * 32, "baseline": "sglang@0.5.23", "baseline_digest": "b2" * 32,
        "candidate": "fused", "candidate_digest": "c3" * 32, "style": "returns", "verdict": "faster", "reasons": (),
        "headline": {"wall": HEADLINE, "stream": HEADLINE, "device": {"unavailable": NO_LOOP}}, "rows": rows,
        "evidence": True,
        "provenance": {
            "policy": {"decides": "stream", "threads": 3}, "hardware": {"model": "EPYC 9334", "driver": None},
            "seed": 8812371, "command": "kernwright judge norm", "isolation": {"network": "none at all"},
            "state_before": {"load_1min": 0.31, "clocks_mhz": [3200, 3201]}, "libraries": {},
        },
    }  # fmt: skip
    return Verdict.model_validate(fields | more)


def some_rows() -> tuple[RowVerdict, ...]:
    faults: tuple[Outcome, ...] = ("incorrect", "tampered", "failed")
    errors = {"y": {"max_error": 0.0156, "rms_error": 0.00117, "eager_max": 0.0312, "eager_rms": 0.00128}}
    timed = [a_row(f"r{i}", result=a_result(r), errors=errors, deterministic=True) for i, r in enumerate((0.86, 1.9))]
    return (*timed, *(a_row(f"row_{name}", name, reasons=(f"why {name}", "and more")) for name in faults))


class Reader(HTMLParser):
    """Collects text and attributes, and checks that every opened tag is closed in order."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.cells: list[str] = []
        self.words: list[str] = []
        self.feed(markup)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag in ("td", "th"):
            self.cells.append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, f"</{tag}> closes something else, at {self.getpos()}"

    def handle_data(self, data: str) -> None:
        if "style" in self.open:
            return
        self.words.append(data)
        if "td" in self.open or "th" in self.open:
            self.cells[-1] += data

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def test_every_row_and_figure_is_there_and_each_reason_once() -> None:
    reasons = ("slower on r0", "1 rows: why tampered")
    verdict = a_verdict(some_rows(), reasons=reasons, not_admitted="never checked")
    seen = Reader(render_page([verdict], "Title"))
    assert {row.id for row in verdict.rows} <= set(seen.cells)
    for expected in ("1.436×", "1.421 – 1.452", "1.56e-02", "1.28e-03"):
        assert expected in seen.text
    once = (
        "slower on r0",
        "never checked",
        "why incorrect",
        "why tampered",
        "and more",
        f"device is not available: {NO_LOOP}",
    )
    assert {reason: seen.text.count(reason) for reason in once} == dict.fromkeys(once, 1)


def test_the_deciding_metric_comes_first() -> None:
    other = HEADLINE.model_copy(update={"geomean": 2.5, "outcome": "same", "undecided": ("r1",)})
    verdict = a_verdict(some_rows(), metric="wall", headline={"stream": HEADLINE, "wall": other})
    text = Reader(render_page([verdict], "Title")).text
    section = text[text.index("fused against") :]
    assert section.index("wall (decides)") < section.index("2.500×") < section.index("1.436×")
    assert "1 undecided" in section and "not timed" not in section


def test_a_verdict_without_a_time_has_no_plot() -> None:
    page = Reader(render_page([a_verdict((a_row("r", "failed", reasons=("signal 11",)),))], "Title"))
    assert not any(tag == "figure" for tag, _ in page.tags) and page.text.count("signal 11") == 1


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"candidate": "kernwright"}, "--candidate kernwright --baseline sglang@0.5.23"),
        ({"candidate": "compile"}, "--contender compile --baseline"),
        ({"candidate": "eager", "baseline": "eager"}, "--aa --baseline eager"),
        ({"quick": True, "metric": "device"}, "--metric device --rows r0,r1,row_incorrect,"),
        ({"quick": True}, " --quick"),
    ],
)  # fmt: skip
def test_the_command_repeats_the_run(more: dict[str, object], words: str) -> None:
    command = repeating_command(a_verdict(some_rows(), **more))
    assert command.startswith("kernwright judge norm ") and words in command


def test_the_command_has_the_path_of_a_candidate() -> None:
    about = {
        "sources": {"candidate.toml": "a1"},
        "command": "kernwright judge norm --candidate 'a b/fused' --rows 'r*'",
    }
    command = repeating_command(a_verdict(some_rows(), provenance=about))
    assert "--candidate 'a b/fused'" in command and command.endswith("--rows 'r*'")


def test_provenance_and_digests_are_there_and_collapsed() -> None:
    seen = Reader(render_page([a_verdict(some_rows())], "Title"))
    for expected in (
        "8812371",
        "EPYC 9334",
        "none at all",
        "3200, 3201",
        "kernwright judge norm",
        "a1" * 32,
        "c3" * 32,
    ):
        assert expected in seen.text
    assert [attrs for tag, attrs in seen.tags if tag == "details"] == [{}], "and nothing else is hidden"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"evidence": True}, "evidence"),
        ({"evidence": True, "interrupted": True}, "evidence for the finished rows: interrupted run"),
        ({"evidence": False, "quick": True}, "not evidence: quick run"),
        ({"evidence": False, "interrupted": True}, "not evidence: interrupted run"),
        ({"evidence": False, "quick": True, "interrupted": True}, "not evidence: quick and interrupted run"),
        ({"evidence": False}, "not evidence: partial run"),
        ({"evidence": True, "quick": True}, "not evidence: quick run"),
    ],
)
def test_a_verdict_that_is_no_evidence_is_marked(flags: dict[str, bool], words: str) -> None:
    seen = Reader(render_page([a_verdict(**flags)], "Title"))
    told = [cell for cell in seen.cells if "evidence" in cell]
    assert len(told) == 1 and told[0].endswith(words) and ("not" in told[0]) == ("not" in words)


def test_text_from_a_verdict_stays_text() -> None:
    attack = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>\u202e\x1b"
    row = a_row(attack, "failed", reasons=(attack,), errors={attack: {"max_error": 1.0}})
    verdict = a_verdict(
        (row, a_row("r", metrics={"wall": {"unavailable": attack}, "stream": a_result(1.1)})),
        candidate=attack, baseline=attack, task=attack, style=attack, reasons=(attack,),
        headline={"device": {"unavailable": attack}}, provenance={attack: {attack: [attack]}, "device": attack},
    )  # fmt: skip
    markup = render_page([verdict], attack)
    seen = Reader(markup)
    names = {name for _, attrs in seen.tags for name in attrs}
    assert "<script" not in markup and not {"script", "img"} & {tag for tag, _ in seen.tags}
    shown = attack.replace("\u202e\x1b", "\\u202e\\x1b")
    assert "onerror" not in names and seen.text.count(shown) >= 10 and not {"\u202e", "\x1b"} & set(markup)


def test_the_page_stands_alone_and_is_accessible() -> None:
    markup = render_page([a_verdict(some_rows()), a_verdict(some_rows())], "Title")
    seen = Reader(markup)
    assert not {"script", "link", "img", "iframe"} & {tag for tag, _ in seen.tags}
    assert not re.search(r"https?://|url\(|@import", markup)
    assert all("scope" in attrs for tag, attrs in seen.tags if tag == "th")
    identities = [attrs["id"] for _, attrs in seen.tags if "id" in attrs]
    assert len(identities) == len(set(identities))
    named = [part for _, attrs in seen.tags for part in (attrs.get("aria-labelledby") or "").split()]
    targets = [(attrs.get("href") or "")[1:] for tag, attrs in seen.tags if tag == "a"]
    assert named and len(targets) == 2 and set(named + targets) <= set(identities)
    assert all(a.get("role") == "img" or a.get("aria-hidden") == "true" for tag, a in seen.tags if tag == "svg")


@pytest.mark.parametrize("count", [0, 1, 300])
def test_any_number_of_rows_renders(count: int) -> None:
    rows = tuple(a_row(f"row_{i}", result=a_result(0.01 * 1.036**i)) for i in range(count))
    seen = Reader(render_page([a_verdict(rows, headline={}, provenance={})], "Title"))
    assert sum(cell.startswith("row_") for cell in seen.cells) == count
    assert ("This verdict has no rows" in seen.text) == (count == 0)
    assert not re.search(r"\b(nan|inf)\b", seen.text, re.IGNORECASE)


def test_missing_verdicts_and_unbounded_figures_are_put_in_words() -> None:
    assert "There are no verdicts" in Reader(render_page([], "Title")).text
    unbounded = HEADLINE.model_copy(update={"interval": (0.0, 1e9), "noise_band": 1e9})
    row = a_row("r", "incorrect", errors={"y": {"max_error": float("nan"), "rms_error": float("inf")}})
    seen = Reader(render_page([a_verdict((row,), headline={"stream": unbounded})], "Title"))
    assert "1.436× unbounded" in seen.text and seen.text.count("not finite") == 2
    assert not re.search(r"\b(nan|inf|1e\+?09)\b", seen.text, re.IGNORECASE)


def test_table_rows_have_as_many_columns_as_the_head() -> None:
    """For each kind of row: timed, unavailable, never timed."""
    markup = render_page([a_verdict(some_rows())], "Title")
    table = markup[markup.index('<table class="cards rows">') :].split("</table>")[0]
    widths = [len(re.findall(r"<t[hd](?=[ >])", line)) for line in table.split("<tr>")[1:]]
    assert len(widths) == 6 and len(set(widths)) == 1, widths


def test_the_same_verdicts_give_the_same_bytes(tmp_path: Path) -> None:
    verdicts = [a_verdict(some_rows())]
    again = [Verdict.model_validate_json(verdict.model_dump_json()) for verdict in verdicts]
    for name, given in (("a.html", verdicts), ("b.html", again)):
        write_page(given, tmp_path / name, "Title")
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()
    assert render_page([a_verdict(some_rows(), candidate="other")], "Title") != render_page(verdicts, "Title")


def test_a_failed_write_leaves_nothing_and_names_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("a file")
    with pytest.raises(EnvironmentProblem) as caught:
        write_page([a_verdict()], tmp_path / "file" / "page.html", "Title")
    assert "page.html" in caught.value.cause and caught.value.remedy
    (tmp_path / "old.html").write_text("old")
    monkeypatch.setattr(Path, "replace", lambda self, target: (_ for _ in ()).throw(OSError(28, "No space left")))
    with pytest.raises(EnvironmentProblem, match="No space left"):
        write_page([a_verdict()], tmp_path / "old.html", "Title")
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {"file": "a file", "old.html": "old"}


def test_the_template_ships_beside_its_module() -> None:
    assert (Path(page_module.__file__).parent / "verdict_page.html.j2").is_file()


def invoke(*arguments: str) -> tuple[int, str, BaseException | None]:
    app = typer.Typer()
    app.command()(report)
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.output, result.exception


def a_ledger(root: Path, *bodies: dict[str, object]) -> list[str]:
    names = []
    for body in bodies:
        with Ledger(root).open_run({"host": "h"}) as run:
            if body:
                run.append("verdict", body)
            names.append(run.run)
    return names


def test_the_command_takes_all_verdicts_or_those_named(tmp_path: Path) -> None:
    first, second = (a_verdict(some_rows(), candidate=name).model_dump(mode="json") for name in ("alpha", "beta"))
    runs = a_ledger(tmp_path / "l", first, {}, second, {"task": "no verdict at all"})
    place = ("--ledger", str(tmp_path / "l"), "--out", str(tmp_path / "page.html"))
    status, output, _ = invoke(*place)
    page = (tmp_path / "page.html").read_text()
    assert status == 0 and "2 verdict(s)" in output and "alpha" in page and "beta" in page
    assert f"left out run {runs[3]}" in output
    assert invoke(runs[2], *place)[0] == 0
    page = (tmp_path / "page.html").read_text()
    assert "beta" in page and "alpha" not in page
    for named in (runs[1], runs[3], "no-such-run"):
        assert isinstance(invoke(named, *place)[2], LedgerError)
    assert (tmp_path / "page.html").read_text() == page


def test_the_command_refuses_a_ledger_without_verdicts(tmp_path: Path) -> None:
    _, _, problem = invoke("--ledger", str(tmp_path / "none"), "--out", str(tmp_path / "page.html"))
    assert isinstance(problem, LedgerError) and "--ledger" in problem.remedy and not (tmp_path / "page.html").exists()


def test_a_quick_verdict_without_interval_has_a_page_too() -> None:
    coarse = HEADLINE.model_copy(update={"interval": None, "noise_band": None})
    seen = Reader(render_page([a_verdict(some_rows(), headline={"stream": coarse})], "t"))
    words = " ".join(" ".join(seen.words).split())
    assert "1.436× coarse" in words and "noise not known" in words
