"""Artifacts for a pull request, the check of a model by labels, and the commands of both."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from made_promotable import MadeCampaign, make_campaign
from typer.testing import CliRunner

from kernwright.campaign.promotion.model_check import check_by_labels
from kernwright.cli.campaign.group import app
from kernwright.core.errors import KernwrightError
from kernwright.diagnose.perf_dump.dump import PerfDump
from kernwright.diagnose.perf_dump.dump_files import write_dump
from kernwright.diagnose.perf_dump.provenance import RunProvenance
from kernwright.report.artifacts.artifact_folder import ArtifactFolder


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, good_verdict: Any, quiet: Any) -> MadeCampaign:
    return make_campaign(tmp_path_factory.mktemp("artifacts")).iterate_once(good_verdict, quiet)


def write_label(folder: Path, times: list[float], swap: str = "") -> str:
    """Write the perf dumps of repeated runs, and return the folder's path."""
    for number, time in enumerate(times):
        settings = {"swap": f"model:turn={swap}"} if swap else {}
        dump = PerfDump.model_validate(
            {
                "total_duration_ms": time + 500.0 + number,
                "steps": [{"name": "DenoisingStage", "duration_ms": time}],
                "kernwright": RunProvenance(label=folder.name, preset="made", command="made", settings=settings),
            }
        )
        write_dump(folder / f"{number}.json", dump)
    return str(folder)


def test_a_model_check_needs_a_faster_loop_with_this_version(made: MadeCampaign, tmp_path: Path) -> None:
    base = write_label(tmp_path / "base", [1000.0, 1003.0, 998.0, 1001.0])
    solution = str(made.campaign.solution)
    new = write_label(tmp_path / "new", [900.0, 902.0, 899.0, 903.0], solution)
    check = check_by_labels(made.campaign, base, new, "swap")
    assert check.improved
    assert check.figures["denoise_change"] == pytest.approx(901.0 / 1000.5 - 1.0, abs=1e-3)
    assert check.figures["end_to_end_base_ms"] == pytest.approx(1502.0, abs=1.0)
    slower = write_label(tmp_path / "slower", [1010.0, 1013.0, 1009.0, 1011.0], solution)
    assert not check_by_labels(made.campaign, base, slower, "swap").improved
    once = write_label(tmp_path / "once", [900.0], solution)
    single = write_label(tmp_path / "single", [1000.0])
    assert not check_by_labels(made.campaign, single, once, "swap").improved, "two single runs have no interval"
    other = tmp_path / "turns"
    other.mkdir()
    (other / "candidate.toml").write_text((made.campaign.solution / "candidate.toml").read_text())
    (other / "kernel.cc").write_text("// another kernel\n")
    changed = write_label(tmp_path / "changed", [900.0, 901.0], str(other))
    with pytest.raises(KernwrightError, match="another version"):
        check_by_labels(made.campaign, base, changed, "swap")
    with pytest.raises(KernwrightError, match="one swap"):
        check_by_labels(made.campaign, base, write_label(tmp_path / "plain", [900.0, 901.0]), "swap")


def test_the_folder_has_figures_from_records_and_names_what_is_missing(made: MadeCampaign, tmp_path: Path) -> None:
    pictures = (tmp_path / "one.png", tmp_path / "two.png")
    for number, picture in enumerate(pictures):
        picture.write_bytes(b"picture %d" % number)
    base = write_label(tmp_path / "base", [1000.0, 1003.0, 998.0])
    check = check_by_labels(made.campaign, base, write_label(tmp_path / "new", [900.0, 902.0, 899.0]), "denoise")
    folder = tmp_path / "pull"
    ArtifactFolder(made.campaign, pictures).write(folder)
    (verdict,) = ArtifactFolder(made.campaign).case.runs.verdicts
    with (folder / "microbenchmark.csv").open() as file:
        (row,) = csv.DictReader(file)
    result: Any = verdict.rows[0].metrics[verdict.metric]
    assert float(row["speedup"]) == pytest.approx(result.ratio, abs=1e-4)
    assert float(row["low"]) == pytest.approx(result.interval[0], abs=1e-4)
    text = (folder / "README.md").read_text()
    sections = dict(part.split("\n", 1) for part in text.split("\n## ")[1:])
    assert "no GPU" in sections["Hardware counters"]
    assert f"| {check.figures['denoise_change']:.6g} |" in sections["Denoise"]
    assert "![before the change](before.png)" in sections["Images"]
    assert (folder / "after.png").read_bytes() == b"picture 1"
    assert "Kernels or operators of one call" in sections["Why it is faster"]
    assert "no review" in sections["Review and promotion"]
    assert "kernwright judge turns" in sections["Reproduce"]
    assert "sgl-project/sglang#34314" in sections["Overlapping upstream work"]
    with pytest.raises(KernwrightError, match="not empty"):
        ArtifactFolder(made.campaign).write(folder)


def test_the_commands(made: MadeCampaign, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(made.repository)

    def run(*words: str, status: int) -> str:
        result = CliRunner().invoke(app, words)
        assert result.exit_code == status, result.output
        return result.output

    assert str(tmp_path / "out" / "README.md") in run("artifacts", str(tmp_path / "out"), status=0)
    assert "no review of this version" in run("review", status=0)
    assert "rejected by person Rita" in run("review", "--reject", "--why", "not yet", status=1)
