"""Foreign text in the output of commands: names, titles, reasons and rows are shown literally."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kernwright.admission.admission import Admission, MutantTrial
from kernwright.cli import console
from kernwright.cli.judge import sweep
from kernwright.cli.main import app, main
from kernwright.judge.checks.sanitizer import SanitizerFinding
from kernwright.judge.checks.verification import RowFinding
from kernwright.judge.record.verdict import Verdict
from kernwright.ledger.ledger import Ledger
from kernwright.report.table import admission_table, findings_table

CLI = Path(console.__file__).parent
NAME = "[b]kernwright[/b]"
HOSTILE = f"{NAME}\x1b[2J\u202e\u200b:boom:"


def hostile_verdict() -> Verdict:
    rows = [
        {"id": f"{HOSTILE}{number}", "op": HOSTILE, "verdict": "failed", "reasons": [HOSTILE], "bytes_min": 1}
        for number in range(2)
    ]
    return Verdict.model_validate(
        {
            "task": HOSTILE, "task_digest": "a", "baseline": HOSTILE, "baseline_digest": "b", "candidate": HOSTILE,
            "candidate_digest": "c", "style": "returns", "verdict": "failed", "reasons": [f"2 rows: {HOSTILE}"],
            "headline": {"wall": {"unavailable": HOSTILE}}, "rows": rows, "evidence": True,
            "provenance": {"policy": {"decides": "wall"}, "device": HOSTILE, "hardware": {"model": HOSTILE}, "seed": 1},
        }
    )  # fmt: skip


def recorded(folder: Path) -> Ledger:
    ledger = Ledger(folder / "ledger")
    with ledger.open_run({"task": HOSTILE}) as writer:
        writer.append("verdict", hostile_verdict().model_dump(mode="json"))
        writer.append(HOSTILE, {})
    return ledger


def assert_plain(shown: str) -> None:
    assert NAME in shown and ":boom:" in shown
    assert not {"\x1b", "\u202e", "\u200b"} & set(shown)


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the console so wide that no name is wrapped."""
    monkeypatch.setattr(console, "out", console.PlainConsole(width=1000))


@pytest.mark.parametrize(
    "words", [["ledger", "show"], ["ledger", "show", "--kind", "verdict"], ["judge", "norm_infer"]]
)
@pytest.mark.usefixtures("wide")
def test_commands_show_a_hostile_verdict_as_text(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernwright.judge.request.judge", lambda *_: hostile_verdict())
    ledger = recorded(tmp_path)
    assert_plain(CliRunner().invoke(app, [*words, "--ledger", str(ledger.root)]).output)


@pytest.mark.usefixtures("wide")
def test_a_sanitized_candidate_is_shown_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    finding = SanitizerFinding(tool=HOSTILE, outcome="clean", reason=HOSTILE, calls=(), seconds=0.0)
    monkeypatch.setattr("kernwright.judge.checks.sanitizer.sanitize", lambda *_: [finding])
    assert_plain(CliRunner().invoke(app, ["sanitize", "tiny", "--candidate", "x"]).output)


@pytest.mark.usefixtures("wide")
def test_tables_and_notes_show_text(capsys: pytest.CaptureFixture[str]) -> None:
    trial = MutantTrial(HOSTILE, HOSTILE, 1, (HOSTILE,), "")
    finding = RowFinding(
        baseline=HOSTILE, task=HOSTILE, row=HOSTILE, op=HOSTILE, finding="failed", reason=HOSTILE
    )  # fmt: skip
    printing: list[Callable[[], Any]] = [
        lambda: console.out.print(admission_table(Admission(HOSTILE, HOSTILE, (trial,), (HOSTILE,)))),
        lambda: console.out.print(findings_table([finding], counted=True)),
        lambda: sweep.tell(hostile_verdict()),
        lambda: console.out.print(HOSTILE),
    ]
    for show in printing:
        show()
        assert_plain(capsys.readouterr().out)


def test_a_progress_bar_shows_text(capsys: pytest.CaptureFixture[str]) -> None:
    with console.ProgressBar() as bar:
        bar.phase(HOSTILE, 1)
        bar.step(HOSTILE)
        console.err.print(bar._progress)
    assert_plain(capsys.readouterr().err)


@pytest.mark.usefixtures("wide")
def test_a_tasks_title_is_text(tmp_path: Path, write_task: Callable[..., Path], task_texts: dict[str, str]) -> None:
    text = task_texts["toml"]
    title = 'title = "' + HOSTILE.replace("\x1b", "\\u001b") + '"'
    lines = [title if line.startswith("title") else line for line in text.splitlines()]
    folder = write_task(tmp_path / "tiny", toml="\n".join(lines))
    assert_plain(CliRunner().invoke(app, ["task", "show", str(folder)]).output)


def test_an_error_is_text(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["kernwright", "task", "show", HOSTILE])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert_plain(capsys.readouterr().err)


def test_everything_is_printed_through_the_plain_console() -> None:
    """Every module uses the plain console. Another console would interpret markup."""
    own = {CLI / "console.py", CLI / "output.py"}
    found = [
        f"{path.relative_to(CLI)}:{node.lineno}"
        for path in CLI.rglob("*.py")
        if path not in own
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("print", "Console", "typer.echo", "click.echo")
    ]
    assert found == []
