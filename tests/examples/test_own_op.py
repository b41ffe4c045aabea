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


@pytest.mark.slow
def test_the_page_leads_to_a_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, private_tmp: Path) -> None:
    folder = shutil.copytree(CHECKOUT / "examples" / "own_op", tmp_path / "own_op")
    monkeypatch.chdir(folder)
    capture, new, check, judge = commands()
    capture[capture.index("python")] = sys.executable
    done = subprocess.run(
        [sys.executable, "-m", "kernwright", *capture], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    for command in (new, check):
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 0, (result.output, result.exception)
    drafted = (folder / "tasks" / "gated_relu2" / "ops.py").read_text()
    shown = PAGE.read_text().partition("```python\nimport torch\n")[2].partition("```")[0]
    assert shown in drafted, "the page shows the file that is written"
    CliRunner().invoke(app, [*judge, "--json", "verdict.json"])
    verdict = json.loads((folder / "verdict.json").read_text())
    assert verdict["verdict"] in ("faster", "same", "slower", "inconclusive"), verdict["reasons"]
    assert verdict["not_admitted"] is None
    assert {row["cases"] > 5 for row in verdict["rows"]} == {True}
