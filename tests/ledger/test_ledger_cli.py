"""``kernwright ledger`` as a user sees it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from kernwright.cli.main import app as whole_app
from kernwright.cli.records.ledger import app
from kernwright.core.errors import LedgerError
from kernwright.ledger.ledger import Ledger


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    ledger = Ledger(tmp_path / "ledger")
    with ledger.open_run({"task": {"name": "norm_modulate"}}) as writer:
        writer.append("verdict", {"task": "norm_modulate", "verdict": {"outcome": "faster"}})
        writer.append("note", {"task": 7, "verdict": None})
    with ledger.open_run({}) as other:
        other.append("verdict", {"task": "rope", "verdict": "slower"})
    return ledger


def test_show_lists_runs(ledger: Ledger) -> None:
    result = call("show", "--runs", "--ledger", ledger.root)
    assert result.exit_code == 0
    rows = [line for line in result.output.splitlines() if any(run in line for run in ledger.runs())]
    assert len(rows) == 2
    assert "norm_modulate" in rows[0] and "1 verdict" in rows[0] and " 3 " in rows[0]


def test_show_lists_the_records_of_a_run_by_part_of_its_id(ledger: Ledger) -> None:
    run = ledger.runs()[0]
    result = call("show", run[-8:], "--ledger", ledger.root)
    assert result.exit_code == 0
    verdict_row = next(line for line in result.output.splitlines() if "faster" in line)
    for shown in (run, " 1 ", "verdict", "norm_modulate", ledger.records(run)[1].time[:19]):
        assert shown in verdict_row


def test_show_selects_a_kind_over_all_runs_as_json(ledger: Ledger) -> None:
    result = call("show", "--kind", "verdict", "--json", "--ledger", ledger.root)
    rows = [json.loads(line) for line in result.output.splitlines()]
    assert rows == [record.model_dump() for record in ledger.all_records() if record.kind == "verdict"]
    runs = [json.loads(line)["run"] for line in call("show", "--json", "--ledger", ledger.root).output.splitlines()]
    assert runs == ledger.runs()


def test_show_says_when_there_is_nothing(ledger: Ledger, tmp_path: Path) -> None:
    assert "no runs in" in call("show", "--ledger", tmp_path).output
    assert "no records of kind 'x'" in call("show", "--kind", "x", "--ledger", ledger.root).output
    result = call("show", "2", "--ledger", ledger.root)
    assert isinstance(result.exception, LedgerError) and "2 runs match" in result.exception.cause


def test_show_lists_the_sound_runs_beside_a_damaged_one(ledger: Ledger) -> None:
    damaged, sound = ledger.runs()
    path = ledger.run_path(damaged)
    path.write_bytes(path.read_bytes().replace(b"faster", b"fastest"))
    result = call("show", "--ledger", ledger.root)
    assert result.exit_code == 0 and "damaged" in result.output and sound in result.output
    assert isinstance(call("show", damaged, "--ledger", ledger.root).exception, LedgerError)


def test_show_keeps_control_characters_from_the_terminal(ledger: Ledger) -> None:
    with ledger.open_run({"task": "\x1b[2Jwiped\x07"}) as writer:
        pass
    output = call("show", writer.run, "--ledger", ledger.root).output
    assert "wiped" in output and "\x1b" not in output and "\x07" not in output


def test_verify_is_silent_success_or_a_line_for_each_problem(ledger: Ledger) -> None:
    result = call("verify", "--ledger", ledger.root)
    assert result.exit_code == 0
    assert "sound, 2 run(s), 5 record(s)" in result.output
    for run in ledger.runs():
        path = ledger.run_path(run)
        path.write_bytes(path.read_bytes().replace(b'"kind":"verdict"', b'"kind":"Verdict"'))
    result = call("verify", "--ledger", ledger.root)
    assert result.exit_code == 1
    problems = [line for line in result.output.splitlines() if ": edited: " in line]
    assert len(problems) == 2
    assert all(
        f"{run}.jsonl:2" in line and "record 1" in line for run, line in zip(ledger.runs(), problems, strict=True)
    )


def test_verify_notes_an_unfinished_write(ledger: Ledger) -> None:
    with ledger.heads_path.open("ab") as stream:
        stream.write(b"{")
    result = call("verify", "--ledger", ledger.root)
    assert result.exit_code == 0 and "note: heads.jsonl: an unfinished write" in result.output


def test_runs_that_are_named_stay_behind(ledger: Ledger, tmp_path: Path) -> None:
    """This is how some runs are removed from a ledger: they go to an archive, and the others to a new folder."""
    first, last = ledger.runs()
    new = Ledger(tmp_path / "new")
    result = call("import", ledger.root, "--but", first, "--ledger", new.root)
    assert result.exit_code == 0, result.output
    assert result.output.splitlines() == [f"added {last}"] and new.runs() == [last]
    assert call("verify", "--ledger", new.root).exit_code == 0
    refused = call("import", ledger.root, "--but", "nosuch", "--ledger", tmp_path / "newer")
    assert isinstance(refused.exception, LedgerError) and "holds no run nosuch" in str(refused.exception)
    assert not (tmp_path / "newer" / "runs").exists() and ledger.runs() == [first, last]


def test_export_and_import(ledger: Ledger, tmp_path: Path) -> None:
    archive, near = tmp_path / "a.tar.gz", tmp_path / "near"
    first, second = ledger.runs()
    assert "1 run(s)" in call("export", archive, first[-8:], "--ledger", ledger.root).output
    assert call("import", archive, "--ledger", near).output == f"added {first}\n"
    assert "2 run(s)" in call("export", archive, "--ledger", ledger.root).output
    assert call("import", archive, "--ledger", near).output == f"added {second}\nunchanged {first}\n"
    assert call("verify", "--ledger", near).exit_code == 0


def test_errors_reach_the_caller_with_a_remedy(tmp_path: Path) -> None:
    for arguments in (("verify",), ("import", tmp_path / "none"), ("export", tmp_path / "a", "x")):
        error = call(*arguments, "--ledger", tmp_path / "typo").exception
        assert isinstance(error, LedgerError) and error.remedy


def test_the_default_folder_is_the_environments(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNWRIGHT_LEDGER", str(ledger.root))
    assert call("verify").exit_code == 0
    assert ledger.runs()[0] in call("show").output


def test_the_command_needs_no_torch() -> None:
    source = Path(__file__).parents[2] / "src"
    module = "kernwright.cli.records.ledger"
    script = f"import sys; sys.path.insert(0, {str(source)!r}); import {module}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.slow
def test_a_verdict_made_elsewhere_comes_home(
    tiny_folder: Path, tmp_path: Path, private_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A verdict is made elsewhere, carried as one file and imported here. Every step is a command."""
    monkeypatch.chdir(tmp_path)

    def kernwright(*words: object, fine: tuple[int, ...] = (0,)) -> str:
        done = CliRunner().invoke(whole_app, list(map(str, words)))
        assert done.exit_code in fine, (done.output, done.exception)
        return done.stdout

    there, home, archive = tmp_path / "there", tmp_path / "home", tmp_path / "evidence.tar.gz"
    words = ("judge", tiny_folder, "--aa", "--quick", "--rows", "axpy_small", "--ledger", there)
    kernwright(*words, fine=(0, 1))  # either outcome: a busy machine may leave the row undecided
    assert "1 run(s)" in kernwright("ledger", "export", archive, "--ledger", there)
    (run,) = Ledger(there).runs()
    assert kernwright("ledger", "import", archive, "--ledger", home) == f"added {run}\n"
    assert "sound, 1 run(s)" in kernwright("ledger", "verify", "--ledger", home)
    assert Ledger(home).records(run) == Ledger(there).records(run)
    assert "1 verdict(s)" in kernwright("report", "--ledger", home, "--out", tmp_path / "page.html")
