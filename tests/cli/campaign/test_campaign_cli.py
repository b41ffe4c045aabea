"""The commands of a campaign, as far as they judge nothing. tests/campaign/loop/test_run.py has a whole campaign."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tiny_campaign import git, make_repository, make_task
from typer.testing import CliRunner

from kernwright.campaign.campaign import Campaign
from kernwright.campaign.lookup import find_campaign
from kernwright.cli.main import app
from kernwright.core.errors import KernwrightError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with one campaign that was only prepared, and its task beside it."""
    folder = tmp_path_factory.mktemp("campaigns")
    make_repository(folder / "project")
    make_task(folder / "tiny")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder / "project")
        said = call(
            "start", str(folder / "tiny"), "--name", "double", "--baseline", "slow", "--prepare-only", "--cost", "3"
        )
    assert "kernwright campaign step double --hypothesis TEXT" in said
    return folder


@pytest.fixture
def campaign(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Campaign:
    monkeypatch.chdir(folder / "project")
    return find_campaign()


def call(*words: str, group: str = "campaign") -> str:
    """Return the output of a command. Errors are raised as `main` receives them."""
    result = CliRunner().invoke(app, [group, *words])
    if isinstance(result.exception, KernwrightError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def test_only_preparing_measures_nothing(campaign: Campaign) -> None:
    assert not campaign.ledger.exists
    assert "Not measured yet" in (campaign.agent_folder / "baseline.md").read_text()
    assert campaign.settings.budget.cost_usd == 3.0


def test_status_and_list_tell_the_stage_and_the_next_command(campaign: Campaign) -> None:
    assert "prepared" in call("status") and "step double --hypothesis" in call("status", "double")
    status = json.loads(call("status", "--json"))
    assert (status["stage"], status["is_running"], status["best"]["iteration"]) == ("prepared", False, None)
    assert status["folder"] == str(campaign.agent_folder)
    assert status["page"] not in call("status"), "the page does not exist yet"
    assert "double: prepared, 0 iteration(s)" in call("list")
    assert [each["campaign"] for each in json.loads(call("list", "--json"))["campaigns"]] == ["double"]


def test_a_campaign_is_found_from_its_worktree(campaign: Campaign, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(campaign.solution)
    assert "prepared" in call("status")


def test_plot_page_and_difference_of_a_campaign_without_iterations(campaign: Campaign, tmp_path: Path) -> None:
    assert "no iteration has ended yet" in call("plot")
    call("plot", "--out", str(tmp_path / "plot.svg"))
    ElementTree.parse(tmp_path / "plot.svg")
    call("--campaign", "double", "--out", str(tmp_path / "page.html"), group="report")
    assert "No idea was tried yet." in (tmp_path / "page.html").read_text()
    assert "the same" in call("diff", "start", "best")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run",), "human"),
        (("run", "--agent", "tuner"), "--iterations N"),
        (("run", "--iterations", "1", "--agent", "nobody"), "nobody"),
        (("run", "--iterations", "1", "--agent", "command"), "no command line"),
        (("run", "--agent", "tuner", "--budget", "inf"), "--budget must be above 0"),
        (("step", "--hypothesis", "h"), "--direction is missing"),
        (("step", "--hypothesis", "h", "--direction", "d", "--predict", "inf"), "--predict must be above 0"),
        (("show", "1"), "no iteration 1"),
        (("diff", "first", "best"), "'first' is no version"),
        (("status", "trouble"), "did you mean double"),
        (("profile",), "the baseline is not measured yet"),
        (("start", "tiny", "--language", "rust"), "--language 'rust'"),
        (("start", "tiny", "--target", "0"), "--target must be above 0"),
        (("start", "tiny", "--target", "inf"), "--target must be above 0"),
        (("start", "tiny", "--budget", "inf"), "the limit of minutes is inf"),
    ],
)
def test_wrong_usage_names_the_cause(campaign: Campaign, words: tuple[str, ...], said: str) -> None:
    with pytest.raises(KernwrightError, match=said):
        call(*words)


def test_an_unclean_repository_is_refused_before_anything_is_made(folder: Path, campaign: Campaign) -> None:
    strange = folder / "project" / "strange.py"
    strange.write_text("")
    try:
        with pytest.raises(KernwrightError, match=r"strange\.py"):
            call("start", str(folder / "tiny"), "--name", "second")
    finally:
        strange.unlink()
    assert git(folder / "project", "branch", "--list", "kernwright/second") == ""


def test_a_missing_program_is_refused_before_anything_is_made(folder: Path, campaign: Campaign) -> None:
    with pytest.raises(KernwrightError, match="not on PATH"):
        call(
            "start", str(folder / "tiny"), "--name", "third", "--agent", "command", "--agent-command", "no-such-program"
        )
    assert git(folder / "project", "branch", "--list", "kernwright/third") == ""
