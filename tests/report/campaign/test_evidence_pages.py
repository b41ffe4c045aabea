"""Pages of recorded campaigns and of failed ideas, from the committed evidence and from made histories."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_history import NAME, history_of, iteration, settings_of

from kernwright.campaign.record import CampaignStarted
from kernwright.report.campaign.evidence_pages import campaign_files
from kernwright.report.campaign.failed_ideas import failed_idea_files
from kernwright.report.campaign.recorded_campaign import RecordedCampaign, recorded_campaigns, result_of
from kernwright.report.reference.generated_pages import left_over
from kernwright.wiki.page import read_page

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("ratio", "verdict", "result"),
    [
        (2.0, None, "improved"),
        (1.45, None, "no difference shown"),  # 1.31 to 1.60 beside 1.35 to 1.65
        (1.1, None, "slower"),  # 0.99 to 1.21
        (1.9, "same", "not confirmed"),  # its interval is above, and a second run did not confirm it
        (None, "incorrect", "incorrect"),
    ],
)
def test_an_idea_is_slower_only_if_the_intervals_do_not_overlap(
    ratio: float | None, verdict: str | None, result: str
) -> None:
    second = iteration(2, ratio, improved=result == "improved", verdict=verdict)
    history = history_of(iteration(1, 1.5, improved=True), second)
    assert result_of(history, history.iterations[1]) == result


def test_a_difference_within_the_noise_is_none() -> None:
    noisy = iteration(2, 1.1)
    noisy[2] = noisy[2].model_copy(update={"noise_band": 0.4})
    history = history_of(iteration(1, 1.5, improved=True), noisy)
    assert result_of(history, history.iterations[1]) == "no difference shown"


def test_text_of_an_agent_stays_one_line_and_makes_no_link(tmp_path: Path) -> None:
    told = "a [link](x.md)\n## Heading <b> 5x faster"
    started = CampaignStarted(campaign=NAME, settings=settings_of(tmp_path))
    history = history_of(started, iteration(1, 1.5, improved=True), iteration(2, None, hypothesis=told))
    campaign = RecordedCampaign(history, {})
    ((path, text),) = failed_idea_files([campaign], tmp_path).items()
    assert path == tmp_path / "wiki" / "failed-task.md"
    path.parent.mkdir()
    path.write_text(text)
    page = read_page(path)
    assert page.ops == ("twice",) and page.architectures == ("cpu",)
    assert "Iteration 2, loads: incorrect. Idea: a \\[link\\](x.md)" in text
    assert [section.heading for section in page.sections] == [page.title, NAME, "How to check"]
    pages = campaign_files([campaign], tmp_path)
    assert sorted(path.name for path in pages) == ["README.md", f"{NAME}.md", f"{NAME}.svg"]


def test_a_campaign_without_failed_ideas_has_no_page_of_them(tmp_path: Path) -> None:
    started = CampaignStarted(campaign=NAME, settings=settings_of(tmp_path))
    assert failed_idea_files([RecordedCampaign(history_of(started), {})], tmp_path) == {}


def test_the_committed_campaigns_are_read_with_their_machines() -> None:
    found = {each.name: each for each in recorded_campaigns(ROOT)}
    own = found["residual-gate-h200-device"]
    assert (own.task, own.device, own.architecture) == ("residual_gate_add", "NVIDIA H200", "sm_90")
    assert len(own.failed_ideas) == 6
    assert recorded_campaigns(ROOT / "docs") == []


def test_pages_whose_records_are_gone_are_left_over(tmp_path: Path) -> None:
    for name in ("wiki/failed-old.md", "wiki/page.md", "campaigns/old.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    assert [path.name for path in left_over(tmp_path, {})] == ["old.md", "failed-old.md"]
