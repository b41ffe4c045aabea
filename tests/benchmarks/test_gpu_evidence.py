"""The procedure of a GPU session, without a GPU: steps, their commands, and one archive of their records."""

from __future__ import annotations

import argparse
import functools
import importlib
import itertools
import json
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.testing import CliRunner

from kernwright.cli.main import app
from kernwright.ledger.ledger import Ledger
from kernwright.ledger.transfer import import_runs
from kernwright.tasks import catalog
from kernwright.tasks.catalog import list_tasks

find_task = functools.cache(catalog.find_task)  # Every step asks for the same tasks.
SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gpu_evidence.py"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the script as a module. It imports its neighbours and does not inspect the machine."""
    monkeypatch.syspath_prepend(SCRIPT.parent)
    found = importlib.import_module("gpu_evidence")
    monkeypatch.setattr(found, "look_around", lambda *_: {"device": None, "kernels": None})
    return found


def places(tmp_path: Path) -> list[str]:
    return [word for name in ("out", "work", "bundle") for word in (f"--{name}", str(tmp_path / name))]


def judged(tmp_path: Path) -> Counter[tuple[str, str]]:
    """Return how often each contender was judged, according to the archive."""
    ledger = tmp_path / "home"
    import_runs(ledger, tmp_path / "out" / "evidence.tar.gz")
    verdicts = [record.body for record in Ledger(ledger).all_records() if record.kind == "verdict"]
    return Counter((own["candidate"], row["id"]) for own in verdicts for row in own["rows"])


@pytest.mark.slow
@pytest.mark.alone
def test_a_row_is_judged_once_unless_a_repeat_is_requested(
    script: ModuleType, tmp_path: Path, private_tmp: Path, write_doubling: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The steps' commands run in this process."""

    def run_step(name: str, commands: list[list[str]], envs: object, log: Path, seconds: float) -> object:
        (words,) = commands
        done = CliRunner().invoke(app, words[3:])
        log.write_text(done.output)
        return script.Outcome(name, "passed" if done.exit_code == 0 else "failed")

    monkeypatch.setattr(script, "run_step", run_step)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "4-look.log").write_text("of an earlier call")
    task = write_doubling(tmp_path / "tiny", 32)
    steps = [f"{name}=9:{task}" for name in ("field", "again", "field")]
    words = ["--device", "cpu", "--baseline", "eager", "--rounds", "1", *places(tmp_path)]
    assert script.main([*steps, *words]) == 0
    assert judged(tmp_path) == {("eager", "r32"): 2}, "by the first step, and by `again`"
    files = {own.name for own in (tmp_path / "out").iterdir()}
    assert files == {"evidence.tar.gz", "0-field.log", "1-again.log", "2-field.log"}


def test_a_step_that_fails_is_told_and_costs_no_other(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Commands that fail, two of them side by side, and a step whose commands cannot be made."""
    failing = [sys.executable, "-S", "-c", "print('remedy'); raise SystemExit(2)"]
    monkeypatch.setattr(script, "kernwright", lambda *words: [*failing, *words])
    steps = ["sanitize=9:norm_infer,add_norm", "field=9:norm_infer", "sanitize=9:no_such_task"]
    assert script.main([*steps, "--device", "cpu", *places(tmp_path)]) == 1
    shown = capsys.readouterr().out
    assert shown.count("sanitize: failed") == 2 and "field: failed" in shown
    assert "no task named" in (tmp_path / "out" / "2-sanitize.log").read_text()
    told = (tmp_path / "out" / "0-sanitize.log").read_text().splitlines()
    assert told.count("remedy") == 2, "none waits for the other"
    assert not (tmp_path / "out" / "evidence.tar.gz").exists(), "there is nothing to pack"


def test_what_is_done_is_packed_before_the_next_step_whatever_becomes_of_that(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []

    def taken(window: object, step: object, number: int, env: object) -> object:
        order.append(f"step {number}")
        (tmp_path / "out" / f"{number}-field.log").write_text("")
        return script.Outcome("field", "passed")

    def pack(window: object) -> list[str]:
        order.append("packed")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(script, "taken", taken)
    monkeypatch.setattr(script, "pack", pack)
    assert script.main(["field=1", "field=1", "--device", "cpu", *places(tmp_path)]) == 1
    assert order == ["step 0", "packed", "step 1", "packed"]


@pytest.mark.parametrize("word", ["field", "field=", "field=soon", "field=0", "field=-1", "field=inf", "fields=1"])
def test_an_unknown_step_is_refused(script: ModuleType, word: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        script.Step.of(word)


def contenders_of(command: list[str]) -> list[str]:
    return [word for before, word in itertools.pairwise(command) if before == "--contender"]


def baselines_of(command: list[str]) -> list[str]:
    return [word for before, word in itertools.pairwise(command) if before == "--baseline"]


def tasks_of(sweep: list[str]) -> list[str]:
    """Return the arguments of `sweep` before the first option."""
    return list(itertools.takewhile(lambda word: not word.startswith("--"), sweep[4:]))


def test_every_step_has_commands(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line accepts them: every option and every task exists."""
    monkeypatch.setattr("kernwright.tasks.catalog.find_task", find_task)
    window = script.Window(out=tmp_path, work=tmp_path, device="cuda", rows="production", baselines=script.CURRENT)
    commands = {
        name: [command for group in made(window, script.Step(name, 2.5)) for command in group]
        for name, made in script.COMMANDS.items()
    }
    assert {name for name in commands if not commands[name]} == set()
    options: dict[tuple[str, ...], set[str]] = {}
    for command in (own for all_of_them in commands.values() for own in all_of_them if own[1] == "-m"):
        words = tuple(command[3:5] if command[3] == "baseline" else command[3:4])
        options.setdefault(words, set()).update(word for word in command[3:] if word.startswith("--"))
    for words, given in options.items():
        told = CliRunner().invoke(app, [*words, "--help"])
        assert told.exit_code == 0, words
        assert given <= {word.strip("│ ,") for word in told.output.split()}, words
    sanitized = {command[4] for command in commands["sanitize"]}
    assert "norm_infer" in sanitized and "group_norm_silu" in set(list_tasks()) - sanitized, "of ops that have kernels"
    (grids,) = commands["grids"]
    rows = {name: find_task(name).matching(grids[grids.index("--rows") + 1]) for name in tasks_of(grids)}
    assert {name: len(own) for name, own in rows.items()} == {
        name: sum(own.size for own in find_task(name).grids) for name in tasks_of(grids)
    }
    assert {"norm_infer", "residual_gate_add"} <= rows.keys() and all(rows.values()), "tasks without grids are left out"
    assert "group_norm_silu" not in rows, "it has no kernels"
    assert not list(script.grids(window, script.Step("grids", 1.0, ("ernie_adaln_residual_gate",)))), "it has no grids"
    others = {task: contenders_of(own) for own in commands["others"] for task in tasks_of(own)}
    assert others["norm_infer"] == ["liger@0.8.5", "sglang@0.5.12.post1"]
    assert others["norm_tanh_mul_add"] == ["sglang@0.5.12.post1"]
    assert "ltx2_rms_adaln" not in others, "neither has a kernel for it"
    assert not list(script.others(window, script.Step("others", 1.0, ("ltx2_rms_adaln",))))
    (field,) = commands["field"]
    assert all(own[own.index("--device") :][:6] == field[field.index("--device") :][:6] for own in commands["others"])
    assert "--aa" in field and not any("--aa" in own for own in commands["others"]), "once is enough"
    rows_of = {name: len(find_task(name).matching("production")) for name in others}
    counts = [[rows_of[task] for task in tasks_of(own)] for own in commands["others"]]
    assert len(counts) > 1 and counts == sorted(map(sorted, counts), key=sum), "few rows before many"
    peers = {task: baselines_of(own) for own in commands["peers"] for task in tasks_of(own)}
    assert peers["norm_infer"] == others["norm_infer"] and "group_norm_silu" in others.keys() - peers.keys()
    assert not list(script.peers(window, script.Step("peers", 1.0, ("ltx2_rms_adaln",))))
    assert field[field.index("--rounds") + 1] == "2"
    longer = script.Window(
        out=tmp_path, work=tmp_path, device="cuda", rows="production", baselines=script.CURRENT, rounds=10
    )
    ((command,),) = script.field(longer, script.Step("field", 1.0))
    assert command[command.index("--rounds") + 1] == "10"
    swept = json.dumps(commands["ops"])
    assert all(name in swept for name in ("eager", "compile", "sglang@0.5.23", '"2.5"'))
