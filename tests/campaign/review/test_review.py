"""Reviews of a campaign's best version: by a program, by a person, and what blocks."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from made_promotable import GOOD, MadeCampaign, make_campaign

from kernwright.campaign.best_version import BestVersion
from kernwright.campaign.record import ReviewGiven
from kernwright.campaign.review.findings import ReviewState
from kernwright.campaign.review.review import Review
from kernwright.core.errors import BadFile, KernwrightError


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, good_verdict: Any, quiet: Any) -> MadeCampaign:
    """Make a campaign with one iteration that a real judge called faster."""
    return make_campaign(tmp_path_factory.mktemp("review")).iterate_once(good_verdict, quiet)


@pytest.fixture
def fresh(made: MadeCampaign) -> Iterator[MadeCampaign]:
    """Yield the campaign without the reviews that a test adds."""
    before = set(made.campaign.ledger.runs())
    heads = made.campaign.ledger.heads_path.read_bytes()
    yield made
    for run in set(made.campaign.ledger.runs()) - before:
        made.campaign.ledger.run_path(run).unlink()
    made.campaign.ledger.heads_path.write_bytes(heads)


def obstacle(made: MadeCampaign) -> str | None:
    history = made.campaign.history()
    return ReviewState.of(history, BestVersion.of(made.campaign, history).digest).obstacle


def program(answer: dict[str, Any] | str) -> str:
    """Return the command of a reviewer that writes an answer, and tries to write beside its folder."""
    text = answer if isinstance(answer, str) else json.dumps(answer)
    code = f"open('findings.json', 'w').write({text!r}); print('I looked at', open('checklist.md').read()[:20])"
    return shlex.join([sys.executable, "-c", code])


def test_a_reviewer_gets_everything_it_needs(fresh: MadeCampaign) -> None:
    folder = Review(fresh.campaign).prepare()
    assert (folder / "candidate" / "kernel.cc").read_text() == GOOD["kernel.cc"]
    diff = (folder / "diff.patch").read_text()
    assert "-    raise NotImplementedError" in diff
    assert "+  const float* in = data(x);" in diff, "the diff is against the start"
    assert "rotated_pairs" in (folder / "definition.py").read_text()
    checks = {each["id"]: each for each in json.loads((folder / "checklist.json").read_text())}
    grid, fallback = checks["regression-grid"]["facts"], checks["hidden-fallback"]["facts"]
    assert any(fact.startswith("0 of 8 grid rows were judged; not judged: g_") for fact in grid)
    assert any("S=119" in fact and "S=121" in fact for fact in grid), "odd sizes next to 120"
    assert any("made up to" in fact for fact in checks["backdoors"]["facts"]), "calls of the long run"
    assert fallback == ["no call of the candidate ran all of the baseline's operators"]
    (judged,) = json.loads((folder / "verdicts.json").read_text())
    assert f"turned | {judged['rows'][0]['verdict']}" in (folder / "verdicts.md").read_text()
    assert "no GPU" in (folder / "counters.md").read_text()
    assert obstacle(fresh) == "no review of this version"


def test_findings_block_until_each_is_closed_and_the_version_approved(fresh: MadeCampaign) -> None:
    review = Review(fresh.campaign)
    found = {"check": "numerics", "text": "no test of NaN", "file": "kernel.cc", "line": 3}
    given = review.by_program("command", program({"decision": "approved", "why": "read it", "findings": [found]}))
    assert given.decision == "findings", "an approval with findings is none"
    assert [own.id for own in given.findings] == ["F1"]
    assert "F1 (numerics)" in str(obstacle(fresh))
    with pytest.raises(KernwrightError, match="F1"):
        review.by_person("approved")
    with pytest.raises(KernwrightError, match="F7"):
        review.close("F7", "not there")
    with pytest.raises(KernwrightError, match="reason"):
        review.close("F1", "")
    review.close("F1", "the judge's nonfinite inputs cover it")
    assert "not approved" in str(obstacle(fresh)), "closing a finding approves nothing"
    approved = review.by_person("approved")
    assert approved.reviewer == "person Rita Reviewer <rita@example.org>"
    assert obstacle(fresh) is None
    review.by_person("rejected", "second thoughts")
    assert "second thoughts" in str(obstacle(fresh)), "the last decision counts"
    transcript = next(own.transcript for own in fresh.campaign.history().reviews if own.transcript)
    blob = fresh.campaign.ledger.blobs.read(str(transcript).removeprefix("blob:"))
    assert blob.startswith(b"I looked at")


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        ({"decision": "approved"}, "why"),
        ({"decision": "fine", "why": "x"}, "decision"),
        ({"decision": "findings", "why": "x", "findings": [{"check": "style", "text": "x"}]}, "findings.0.check"),
        ("not json", "cannot be read"),
    ],
)
def test_an_answer_against_the_schema_is_refused_and_not_recorded(
    fresh: MadeCampaign, answer: dict[str, Any] | str, named: str
) -> None:
    with pytest.raises(BadFile, match=named):
        Review(fresh.campaign).by_program("command", program(answer))
    assert fresh.campaign.history().reviews == []


def test_a_reviewer_that_fails_or_hangs_decides_nothing(fresh: MadeCampaign) -> None:
    review = Review(fresh.campaign)
    with pytest.raises(KernwrightError, match="status 3"):
        review.by_program("command", shlex.join([sys.executable, "-c", "raise SystemExit(3)"]))
    with pytest.raises(KernwrightError, match="did not end"):
        review.by_program("command", "sleep 60", time_limit_s=0.5)
    with pytest.raises(BadFile, match=r"findings\.json"):
        review.by_program("command", "true")
    assert fresh.campaign.history().reviews == []


def test_a_folder_that_a_reviewer_made_unusable_is_replaced(fresh: MadeCampaign) -> None:
    code = "import os\nfor _ in range(1500):\n    os.mkdir('d')\n    os.chdir('d')\n"
    with pytest.raises(BadFile, match="does not exist"):
        Review(fresh.campaign).by_program("command", shlex.join([sys.executable, "-c", code]))
    assert not (Review(fresh.campaign).prepare() / "d").exists()


def test_a_run_that_edits_a_version_cannot_approve_it(fresh: MadeCampaign) -> None:
    history = fresh.campaign.history()
    version = BestVersion.of(fresh.campaign, history)
    approval = ReviewGiven(
        campaign=fresh.campaign.name, reviewer="program x", candidate_digest=version.digest, commit=version.commit,
        decision="approved",
    )  # fmt: skip
    edited = next(entry.body for entry in history.entries if entry.body.kind == "iteration_edited")
    fresh.record(edited, approval)
    assert "reviewer and builder must differ" in str(obstacle(fresh))


def test_a_review_is_of_one_version(fresh: MadeCampaign) -> None:
    Review(fresh.campaign).by_person("approved")
    history = fresh.campaign.history()
    assert obstacle(fresh) is None
    assert ReviewState.of(history, "0" * 64).obstacle == "no review of this version"
