"""The start of a campaign in a real repository. Nothing is judged here."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from tiny_campaign import CANDIDATE, git, kernel, make_campaign, make_candidate, make_repository, make_task

from kernwright.campaign.lookup import find_campaign
from kernwright.campaign.start.plan import CampaignPlan
from kernwright.campaign.start.start import start_campaign
from kernwright.campaign.state.book import working_on
from kernwright.core.errors import KernwrightError
from kernwright.tasks.candidate import load_candidate


def test_a_campaign_has_a_branch_a_worktree_and_the_agents_files(tmp_path: Path) -> None:
    campaign = make_campaign(tmp_path)
    repository = campaign.settings.repository
    assert git(campaign.worktree, "branch", "--show-current").strip() == "kernwright/double"
    names = {path.name for path in campaign.agent_folder.iterdir()}
    assert names == {
        "prompt.md", "reference.py", "baseline.md", "hints.md", "ITERATIONS.md", "solution", "context",
    }  # fmt: skip
    assert load_candidate(campaign.solution).file.op == "twice"
    assert git(repository, "status", "--porcelain") == "", "the user's tree is as before"
    assert git(campaign.worktree, "status", "--porcelain") == ""
    assert git(repository, "rev-parse", "kernwright/double~1").strip() == campaign.settings.base_commit
    assert find_campaign(start=campaign.solution).settings == campaign.settings
    assert not campaign.ledger.exists, "nothing is recorded or judged yet"


def test_a_given_candidate_is_the_starting_version_byte_by_byte(tmp_path: Path) -> None:
    crlf = {**CANDIDATE, "kernel.py": kernel(1).replace("\n", "\r\n")}
    given = make_candidate(tmp_path / "given")
    (given / "kernel.py").write_bytes(crlf["kernel.py"].encode())
    repository = make_repository(tmp_path / "project")
    (repository / ".gitattributes").write_text("* text=auto eol=lf\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", "Convert line ends")
    plan = CampaignPlan(task=str(make_task(tmp_path / "tiny")), candidate=given)
    campaign = start_campaign(repository, plan)
    assert load_candidate(campaign.solution).digest == load_candidate(given).digest
    kept = f"kernwright/{campaign.name}:campaigns/{campaign.name}/solution/kernel.py"
    assert git(repository, "cat-file", "-p", kept).encode() == (given / "kernel.py").read_bytes().replace(b"\r", b"")
    assert int(git(repository, "cat-file", "-s", kept)) == len((given / "kernel.py").read_bytes())


def test_names_are_taken_once_and_chosen_by_the_op(tmp_path: Path) -> None:
    repository, task = make_repository(tmp_path / "project"), make_task(tmp_path / "tiny")
    names = [start_campaign(repository, CampaignPlan(task=str(task))).name for _ in range(2)]
    assert names == ["twice", "twice-2"]
    git(repository, "branch", "kernwright/mine")
    for name, said in (("twice", "already"), ("mine", "already"), ("kernwright", "called"), ("A b", "called")):
        with pytest.raises(KernwrightError, match=said):
            start_campaign(repository, CampaignPlan(task=str(task), name=name))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"op": "twise"}, "did you mean twice"),
        ({"language": "triton"}, "interpreter"),
        ({"language": "cuda"}, "does not run on a CPU"),
        ({"language": "cpp"}, "--from"),
        ({"rows": "nothing"}, "no rows"),
        ({"baseline": "slower"}, "did you mean slow"),
        ({"metric": "speed"}, "--metric"),
        ({"device": "gpu"}, "'gpu' is not a device"),
        ({"agent": "tuner"}, "--from"),
        ({"name": "n" * 101}, "at most 100"),
    ],
)
def test_a_wrong_option_leaves_nothing_behind(tmp_path: Path, options: dict[str, str], said: str) -> None:
    repository, task = make_repository(tmp_path / "project"), make_task(tmp_path / "tiny")
    with pytest.raises(KernwrightError, match=said):
        start_campaign(repository, CampaignPlan(task=str(task), **options))  # type: ignore[arg-type]
    assert not (repository / ".kernwright").exists()
    assert git(repository, "branch", "--list", "kernwright/*") == ""


def test_a_name_whose_campaign_was_deleted_by_hand(tmp_path: Path) -> None:
    campaign = make_campaign(tmp_path)
    repository, plan = campaign.settings.repository, CampaignPlan(task=campaign.settings.task, name="double")
    shutil.rmtree(campaign.worktree)
    with pytest.raises(KernwrightError, match="worktree add --force") as refused, working_on(campaign):
        pass
    subprocess.run(shlex.split(refused.value.remedy.split("`")[1]), check=True, capture_output=True)
    with working_on(campaign) as book:
        assert book.repository.head == git(repository, "rev-parse", campaign.branch).strip()
    shutil.rmtree(campaign.folder)
    with pytest.raises(KernwrightError, match="has records of a campaign double"):
        start_campaign(repository, plan)
    shutil.rmtree(campaign.settings.ledger)
    with pytest.raises(KernwrightError, match="there is a branch kernwright/double") as refused:
        start_campaign(repository, plan)
    for command in refused.value.remedy.split("`")[1::2]:
        subprocess.run(shlex.split(command), check=True, capture_output=True, cwd=repository)
    assert start_campaign(repository, plan).name == "double"


def test_a_copied_repository_does_not_change_the_campaigns_of_the_first(tmp_path: Path) -> None:
    campaign = make_campaign(tmp_path)
    shutil.copytree(campaign.settings.repository, tmp_path / "copy", symlinks=True)
    with pytest.raises(KernwrightError, match="was started in"):
        find_campaign("double", tmp_path / "copy")


def test_the_tuner_needs_a_candidate_with_parameters(tmp_path: Path) -> None:
    repository, task = make_repository(tmp_path / "project"), make_task(tmp_path / "tiny")
    plan = CampaignPlan(task=str(task), agent="tuner", candidate=make_candidate(tmp_path / "given"))
    with pytest.raises(KernwrightError, match=r"space\.toml"):
        start_campaign(repository, plan)


def test_a_task_with_two_ops_needs_a_choice(tmp_path: Path, tiny_folder: Path) -> None:
    repository = make_repository(tmp_path / "project")
    with pytest.raises(KernwrightError, match="--op"):
        start_campaign(repository, CampaignPlan(task=str(tiny_folder)))
    assert start_campaign(repository, CampaignPlan(task=str(tiny_folder), op="axpy")).settings.op == "axpy"


def test_an_interrupted_start_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kernwright.campaign.state.versions import Versions

    repository, task = make_repository(tmp_path / "project"), make_task(tmp_path / "tiny")
    plan = CampaignPlan(task=str(task), name="double")
    make = Versions.commit_start

    def interrupted(versions: Versions) -> str:
        make(versions)
        raise KeyboardInterrupt

    monkeypatch.setattr(Versions, "commit_start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        start_campaign(repository, plan)
    with pytest.raises(KernwrightError, match="no campaign"):
        find_campaign("double", repository)
    monkeypatch.undo()
    campaign = start_campaign(repository, plan)
    assert len(git(repository, "rev-list", "HEAD..kernwright/double").split()) == 1
    assert campaign.solution.is_dir()


def test_a_campaign_is_found_from_every_worktree(tmp_path: Path) -> None:
    campaign = make_campaign(tmp_path)
    repository = campaign.settings.repository
    git(repository, "worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    assert find_campaign(start=tmp_path / "side") == campaign
    git(repository, "branch", "kernwright-2", campaign.branch)
    for words in (("worktree", "remove", "--force", str(campaign.worktree)), ("branch", "-D", campaign.branch)):
        git(repository, *words)
    git(repository, "branch", "-m", "kernwright-2", "kernwright")
    plan = CampaignPlan(task=campaign.settings.task, name="second", baseline="slow")
    with pytest.raises(KernwrightError, match="the branch kernwright exists"):
        start_campaign(repository, plan)
