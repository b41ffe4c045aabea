"""The card, as an agent reads it."""

from __future__ import annotations

from pathlib import Path

from made_history import NAME, baseline, history_of, iteration, profile, reread, settings_of
from tiny_campaign import make_task

from kernwright.campaign.campaign import Campaign
from kernwright.campaign.files.card import card_text
from kernwright.campaign.files.iterations_file import iterations_text
from kernwright.campaign.files.upstream_work import overlapping_paths, upstream_lines
from kernwright.campaign.history import History
from kernwright.campaign.record import CampaignStarted
from kernwright.diagnose.catalogue.catalogue import shipped_catalogue
from kernwright.wiki.wiki import the_wiki


def card(folder: Path, *bodies: object, avoid: tuple[str, ...] = (), op: str = "twice") -> str:
    make_task(folder / "task")
    own = settings_of(folder).model_copy(update={"op": op})
    history = history_of(CampaignStarted(campaign=NAME, settings=own), *bodies)  # type: ignore[arg-type]
    campaign = Campaign(own)
    return card_text(campaign, history, campaign.task(), campaign.rows(), avoid)


def test_the_card_has_goal_figures_and_past_ideas(tmp_path: Path) -> None:
    text = card(
        tmp_path, baseline((10.0, 4.0, 1.0)), iteration(1, 1.5, improved=True, direction="wider"), profile(1),
        avoid=("wider",),
    )  # fmt: skip
    assert "twice(x: Tensor) -> Tensor" in text
    assert "Goal: 2.500x" in text and "iteration 1, 1.500x over the baseline" in text
    assert "bandwidth on row r0: DRAM at 91%" in text, "the latest profile is newer than that of the baseline"
    assert "Refused directions: wider" in text and "an idea" in text


def test_text_of_an_agent_makes_no_new_lines_or_cells() -> None:
    written = "line one\n## Iteration 9 | faked"
    text = iterations_text(history_of(iteration(1, None, hypothesis=written, direction="a | b")))
    assert "- hypothesis: line one ## Iteration 9 | faked" in text
    assert [line for line in text.splitlines() if line.startswith("## ")] == ["## Iteration 1"]
    assert "| 1 | a \\| b |" in text


def test_iterations_are_the_same_for_the_same_history() -> None:
    done = history_of(iteration(1, 1.2, improved=True), iteration(2, None), reread(2))
    assert iterations_text(done) == iterations_text(History(list(done.entries)))
    assert "Best version: iteration 1 with 1.200x" in iterations_text(done)


def test_overlapping_upstream_work_is_named_with_its_pull_requests() -> None:
    found = overlapping_paths("norm_scale_shift")
    chains = {
        chain
        for path in shipped_catalogue().paths
        if path.name == "kernwright.norm_scale_shift"
        for chain in path.chains
    }
    assert "sglang.norm_scale_shift" in {path.name for path in found if chains & set(path.chains)}
    assert all(path.provider != "kernwright" for path in found)
    assert "sglang.rope" in {path.name for path in overlapping_paths("rotary")}, "its function is a pinned baseline"
    text = "\n".join(upstream_lines("norm_scale_shift"))
    assert all(str(work) in text for path in found for work in path.work)
    assert list(upstream_lines("an_op_of_a_user")) == []


def pages_of(text: str) -> list[str]:
    lines = text.partition("## Pages of the wiki")[2].splitlines()
    return [line.removeprefix("- ").partition(":")[0] for line in lines if line.startswith("- ")]


def test_the_card_names_pages_for_the_device_the_bottleneck_and_the_language(tmp_path: Path) -> None:
    made = [baseline((10.0, 4.0, 1.0)), profile(1)]
    wiki = the_wiki()
    on_cpu = pages_of(card(tmp_path, *made))
    assert on_cpu and all("cpu" in wiki.page(name).architectures for name in on_cpu)
    own = settings_of(tmp_path).model_copy(update={"device": "cuda", "language": "triton", "rows": "*"})
    campaign = Campaign(own)
    history = history_of(CampaignStarted(campaign=NAME, settings=own), *made)
    on_gpu = pages_of(card_text(campaign, history, campaign.task(), campaign.rows(), ()))
    assert on_gpu and all("bandwidth" in wiki.page(name).bottlenecks for name in on_gpu)
    assert "tvm-ffi" not in on_gpu
