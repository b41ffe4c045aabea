"""The commands of docs/own_op.md run as printed."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kernwright.cli.main import app

CHECKOUT = Path(__file__).parents[2]
PAGE = CHECKOUT / "docs" / "own_op.md"


def commands() -> list[list[str]]:
    block = PAGE.read_text().partition("```sh\n")[2].partition("```")[0]
    return [shlex.split(line)[1:] for line in block.splitlines()]


@pytest.fixture(scope="module")
def drafted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the example with its captured calls and the task that was drafted from them."""
    folder = shutil.copytree(CHECKOUT / "examples" / "own_op", tmp_path_factory.mktemp("example") / "own_op")
    capture, new, *_ = commands()
    capture[capture.index("python")] = sys.executable
    done = subprocess.run(
        [sys.executable, "-m", "kernwright", *capture],
        capture_output=True, text=True, check=False, timeout=120, cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        result = CliRunner().invoke(app, new)
    assert result.exit_code == 0, (result.output, result.exception)
    return folder


@pytest.mark.slow
def test_the_page_leads_to_a_verdict(drafted: Path, monkeypatch: pytest.MonkeyPatch, private_tmp: Path) -> None:
    monkeypatch.chdir(drafted)
    *_, check, judge = commands()
    result = CliRunner().invoke(app, check)
    assert result.exit_code == 0, (result.output, result.exception)
    ops = (drafted / "tasks" / "gated_relu2" / "ops.py").read_text()
    shown = PAGE.read_text().partition("```python\nimport torch\n")[2].partition("```")[0]
    assert shown in ops, "the page shows the file that is written"
    CliRunner().invoke(app, [*judge, "--json", "verdict.json"])
    verdict = json.loads((drafted / "verdict.json").read_text())
    assert verdict["verdict"] in ("faster", "same", "slower", "inconclusive"), verdict["reasons"]
    assert verdict["not_admitted"] is None
    assert {row["cases"] > 5 for row in verdict["rows"]} == {True}


def test_an_op_of_a_users_own_task_gets_a_candidate(drafted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(drafted)
    result = CliRunner().invoke(app, ["candidate", "new", "--op", "gated_relu2", "--language", "cpp", "mine"])
    assert result.exit_code == 0, (result.output, result.exception)
    assert sorted(path.name for path in (drafted / "mine").iterdir()) == ["candidate.toml", "kernel.cc", "space.toml"]
