"""kernwright ncu on stored reports: text, JSON, pairs and exit statuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from kernwright.cli.main import app

EXPORTS = Path(__file__).parents[2] / "diagnose" / "ncu" / "exports"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["ncu", *map(str, arguments)])


def test_a_report_is_told_in_words_and_in_json() -> None:
    told = run("--report", EXPORTS / "raw.csv", "--kernel", "rotary|layer_norm")
    assert told.exit_code == 0, told.output
    assert told.output.count("bound: issue") == 2 and "fuse_scale_shift" not in told.output
    (rope,) = json.loads(run("--report", EXPORTS / "details.csv", "--kernel", "rotary", "--json").output)["kernels"]
    assert rope["bound"]["name"] == "issue" and rope["gpu"] == "H200"
    values = {counter["name"]: counter["value"] for counter in rope["bound"]["counters"]}
    assert values["One or More Eligible"] == 75.34


def test_two_reports_are_shown_side_by_side() -> None:
    told = run("--report", EXPORTS / "raw.csv", "--report", EXPORTS / "details.csv")
    assert told.exit_code == 0 and told.output.count("after / before") == 4
    told = run("--report", EXPORTS / "raw.csv", "--report", EXPORTS / "details.csv", "--json")
    (found,) = json.loads(told.output)["reports"]
    assert found["seconds"][0] == pytest.approx(196e-6, rel=1e-3)
    assert [pair["before"]["bound"]["name"] for pair in found["pairs"]] == ["bandwidth", "underfill", "issue", "issue"]


def test_a_bound_that_cannot_be_told_is_status_1(tmp_path: Path) -> None:
    lines = (EXPORTS / "details.csv").read_text().splitlines(keepends=True)
    few = tmp_path / "few.csv"
    few.write_text("".join([lines[0], *(line for line in lines if '"Duration"' in line)]))
    told = run("--report", few)
    assert told.exit_code == 1 and "bound: unknown" in told.output


def test_wrong_usage_names_the_option(tmp_path: Path) -> None:
    raw = EXPORTS / "raw.csv"
    cases = [
        (("--report", raw, "--kernel", "("), "--kernel"),
        (("--report", raw, "--kernel", "absent"), "absent"),
        (("--report", raw, "--gpu", "H2000"), "H200"),
        (("--report", raw, "--report", raw, "--report", raw), "--report"),
        (("--report", tmp_path / "absent.csv"), "absent.csv"),
    ]
    for arguments, named in cases:
        told = run(*arguments)
        assert told.exit_code != 0
        assert named in str(told.exception)
