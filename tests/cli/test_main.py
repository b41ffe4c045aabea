"""The root of the command line and the task commands, as a user sees them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from rich.table import Table
from typer.testing import CliRunner, Result

import kernwright
from kernwright.cli.console import PlainConsole
from kernwright.cli.main import app
from kernwright.core.errors import KernwrightError, LedgerError
from kernwright.ledger.files import missing_ledger
from kernwright.tasks.catalog import find_task
from kernwright.tasks.task import load_task

WEAK_OPS = """
from torch import Tensor
from kernwright.core.op import define

@define(outputs=["z"], activations=["x"])
def careless(x: Tensor, y: Tensor) -> Tensor:
    return x * 2 + 0 * y
"""


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def process(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kernwright.cli.main", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def test_help_and_tasks_are_shown_without_importing_torch() -> None:
    """Asking for help, tasks or completions must not import modules that only a judgement needs, nor must a capture of
    a program with ncu."""
    code = """
import os, sys
import kernwright.diagnose.ncu.capture.target
from typer.testing import CliRunner
from kernwright.cli.console import PlainConsole
from kernwright.cli.main import app
outputs = [CliRunner().invoke(app, words.split()) for words in (
    "--help", "judge -h", "task list", "task list --digests", "task show norm_scale_shift", "task show nosuch",
    "judge nosuch",
)]
words = {"COMP_WORDS": "kernwright task show norm_inf", "COMP_CWORD": "3", "_KERNWRIGHT_COMPLETE": "complete_bash"}
completed = CliRunner(env=words).invoke(app, [], prog_name="kernwright")
print([result.exit_code for result in outputs], completed.output.split(), outputs[0].output)
print([module for module in ("torch", "scipy", "numpy") if module in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert lines[0].startswith("[0, 0, 0, 0, 0, 1, 1] ['norm_infer']")
    for command in ("judge", "task", "capture", "ledger", "report", "bundle", "exploits"):
        assert command in done.stdout
    assert lines[-1] == "[]"


def test_a_command_does_not_import_the_others() -> None:
    code = (
        "import sys\nfrom typer.testing import CliRunner\nfrom kernwright.cli.main import app\n"
        "assert CliRunner().invoke(app, ['task', 'list']).exit_code == 0\n"
        "print([name for name in sys.modules if name.startswith('kernwright.cli.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "kernwright.cli.tasks.task" in done.stdout
    for package in ("judge", "models", "ops", "packages", "records"):
        assert f"kernwright.cli.{package}" not in done.stdout


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("task show norm_sc", ["norm_scale_shift"]),
        ("task show norm_infer --rows prod", ["production"]),
        ("task show norm_infer --rows smoke,rms_hunyuan_1", ["smoke,rms_hunyuan_1320x128"]),
        ("explain wan_", ["wan_rmsnorm_silu"]),
        ("judge norm_infer --baseline sgl", ["sglang@0.5.23", "sglang@0.5.12.post1"]),
        ("baseline fetch lig", ["liger@0.8.5"]),
        ("capture --op residual_g", ["residual_gate"]),
        ("judge norm_infer --contender kern", ["kernwright"]),
    ],
)
def test_shells_complete_names(words: str, found: list[str]) -> None:
    line = f"kernwright {words}"
    asked = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1), "_KERNWRIGHT_COMPLETE": "complete_bash"}
    completed = CliRunner(env=asked).invoke(app, [], prog_name="kernwright")
    assert completed.output.split() == found


def test_row_ids_are_never_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe gets one line per row; a narrow terminal wraps the text behind the id; a table is widened."""
    ids = [row.id for row in find_task("norm_scale_shift").matching("production,smoke")]
    lines = call("task", "show", "norm_scale_shift").output.splitlines()
    assert [line.split()[0] for line in lines if " production " in line or " smoke " in line] == ids
    gated = {row.id for row in find_task("norm_scale_shift").matching("production,smoke") if "gate" in row.inputs}
    assert {line.split()[0] for line in lines if "+gate" in line} == gated
    monkeypatch.setattr("kernwright.cli.columns.sys", SimpleNamespace(stdout=SimpleNamespace(isatty=lambda: True)))
    monkeypatch.setenv("COLUMNS", "40")
    words = call("task", "show", "norm_scale_shift").output.split()
    assert set(ids) <= set(words)
    table = Table()
    table.add_column("row", no_wrap=True)
    for id_ in ids:
        table.add_row(id_)
    narrow = PlainConsole(width=20)
    with narrow.capture() as captured:
        narrow.print(table)
    assert all(f"│ {id_} " in captured.get() for id_ in ids)


def test_version() -> None:
    done = process("--version")
    assert (done.returncode, done.stdout.strip()) == (0, kernwright.__version__)


def test_the_installed_script_is_the_same_program() -> None:
    script = Path(sys.executable).parent / "kernwright"
    if not script.exists():
        pytest.skip("not installed as a script")
    done = subprocess.run([script, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == kernwright.__version__


@pytest.mark.parametrize(
    "words",
    [["judge"], ["juge"], ["--colour"], ["task", "shw"], ["judge", "t", "--seed", "many"], ["judge", "t", "-x"]],
)
def test_bad_usage_exits_2_and_says_how(words: list[str]) -> None:
    result = call(*words)
    assert result.exit_code == 2
    assert "Usage" in result.output or "Error" in result.output


@pytest.mark.parametrize("words", [[], ["task"], ["ledger"]])
def test_without_a_command_help_is_shown(words: list[str]) -> None:
    assert "Usage" in call(*words).output


@pytest.mark.parametrize(
    "words",
    [
        ["ledger", "show"], ["ledger", "verify"], ["ledger", "recompute"], ["ledger", "pack", "x.tar.xz"],
        ["ledger", "export", "x.tar.gz"], ["report"], ["results"], ["results", "--check"],
    ],
)  # fmt: skip
def test_every_command_answers_a_missing_ledger_the_same_way(words: list[str], tmp_path: Path) -> None:
    missing = tmp_path / "none"
    result = call(*words, "--ledger", missing)
    assert isinstance(result.exception, LedgerError)
    assert str(result.exception) == str(missing_ledger(missing))


def test_ctrl_c_ends_with_one_line_and_status_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> dict[str, Path]:
        raise KeyboardInterrupt

    monkeypatch.setattr("kernwright.tasks.catalog.list_tasks", interrupted)
    result = call("task", "list")
    assert (result.exit_code, result.output.strip()) == (130, "kernwright: interrupted")


def all_commands(group: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield words
    for name, command in getattr(group, "commands", {}).items():
        yield from all_commands(command, (*words, name))


def test_every_command_has_the_short_help_option() -> None:
    found = list(all_commands(typer.main.get_command(app)))
    assert len(found) > 20
    for words in found:
        result = call(*words, "-h")
        assert result.exit_code == 0 and "Usage" in result.output, words


def test_list_and_show(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNWRIGHT_TASKS", str(tiny_folder.parent))
    listed = call("task", "list")
    assert listed.exit_code == 0
    assert "tiny" in listed.output and "norm_scale_shift" in listed.output
    shown = call("task", "show", "tiny")
    assert shown.exit_code == 0
    for word in ("axpy_small", "axpy_wide", "huge", "production", "S=6 D=64", "digest "):
        assert word in shown.output


def test_the_list_counts_rows_and_survives_a_bad_task(
    tmp_path: Path, write_task: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_task(tmp_path / "bad", toml="name = ")
    good = write_task(tmp_path / "good")
    monkeypatch.setenv("KERNWRIGHT_TASKS", str(tmp_path))
    listed = call("task", "list", "--digests")
    assert listed.exit_code == 0
    (line,) = (line for line in listed.output.splitlines() if line.startswith("good "))
    *cells, about = line.split(maxsplit=5)
    assert cells == ["good", "1", "4", "0", load_task(good).digest[:12]]
    assert about.startswith("Ops that take microseconds")
    assert "is not valid TOML" in listed.output and "norm_scale_shift" in listed.output


def test_show_chosen_rows_and_json(tiny_folder: Path) -> None:
    shown = call("task", "show", tiny_folder, "--rows", "axpy_*")
    assert "axpy_wide" in shown.output and "negate" not in shown.output
    assert "axpy(x: Tensor, w: Tensor, *, alpha: float = 2.0)" in shown.output
    assert "alpha * x + w (close)" in shown.output
    described = json.loads(call("task", "show", tiny_folder, "--rows", "production", "--json").output)
    assert [row["id"] for row in described["rows"]] == ["huge"]
    assert described["digest"] == load_task(tiny_folder).digest
    assert described["policy"]["block_ms"] == 1.0 and described["tolerance"]["fp32"]["atol"] == 1e-5


def test_show_of_the_shipped_task_lists_every_row() -> None:
    shown = call("task", "show", "norm_scale_shift")
    assert shown.exit_code == 0
    assert shown.output.count("production") == 39


def test_check_refuses_a_weak_task_and_names_the_survivor(
    tmp_path: Path, write_task: Callable[..., Path], make_row: Any
) -> None:
    rows = [make_row("r", "careless", {"x": [4, 9], "y": [4, 9]}, {"z": [4, 9]})]
    result = call("task", "check", write_task(tmp_path / "weak", ops=WEAK_OPS, rows=rows))
    assert result.exit_code == 1
    (line,) = (line for line in result.output.splitlines() if "dropped term (y)" in line)
    assert "survives" in line
    assert "refused" in result.output.splitlines()[-1] and "remedy" not in result.output


def test_check_admits_the_shipped_task_on_a_row() -> None:
    result = call("task", "check", "norm_scale_shift", "--rows", "smoke_plain_s19_*")
    assert result.exit_code == 0, result.output
    last = result.output.splitlines()[-1]
    assert last.endswith("not checked: residual_norm_scale_shift"), "nothing is said of a task from some of its rows"
    assert "survives" not in result.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["task", "show", "no_such_task"], "no task named 'no_such_task'"),
        (["task", "check", "norm_scale_shift", "--rows", "none*"], "no rows that match 'none*'"),
        (["capture", "--call", "m:f"], "no program was named"),
        (["capture", "--call", "m.f", "--", "true"], "--call m.f: is not of the form module:function"),
        (["capture", "--call", "no/such.py:f", "--", "true"], "the file no/such.py does not exist"),
        (["capture", "--call", "torch.ops.own:f.default", "--", "true"], "without its overload"),
        (["capture", "--op", "no_such_op", "--", "true"], "--op no_such_op: no such op"),
        (["capture", "--call", "m:f", "--", "./no-such-program"], "./no-such-program cannot be run: No such file"),
        (["capture", "--call", "m:f", "--out", "no/such/folder/x", "--", "true"], "no/such/folder/x cannot be written"),
        (["capture", "--recover", "nowhere"], "plan.json: does not exist"),
    ],
)
def test_what_cannot_be_done_is_refused_with_a_remedy(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KERNWRIGHT_LEDGER", str(tmp_path))
    done = call(*words)
    assert isinstance(done.exception, KernwrightError)
    assert said in str(done.exception) and done.exception.remedy
    assert done.stdout == ""


def test_a_task_file_with_a_fault_is_one_message(tmp_path: Path, write_task: Callable[..., Path]) -> None:
    folder = write_task(tmp_path / "t", toml="name = ")
    done = process("task", "show", folder)
    assert done.returncode == 2
    assert "task.toml: is not valid TOML" in done.stderr and "remedy: " in done.stderr
    assert "Traceback" not in done.stderr and done.stdout == ""
