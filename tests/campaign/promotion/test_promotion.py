"""The promotion of a campaign's best version into kernwright.ops, with real verdicts and a real branch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from commanded_campaign import CommandedCampaign
from made_promotable import GOOD, MadeCampaign, git, make_campaign

from kernwright.campaign.promotion.promotion import NotReady, Promotion
from kernwright.campaign.record import ModelCheck, Promoted
from kernwright.core.errors import KernwrightError
from kernwright.judge.record.recorded import recorded_bodies
from kernwright.ledger.ledger import Ledger
from kernwright.ledger.transfer import export_runs
from kernwright.ledger.verify import examine

pytestmark = pytest.mark.clock  # only a version that was judged faster is promoted
NAMES = {
    "correct on the full grid",
    "judged again with fresh seeds",
    "a model became faster, or the op's share is too small to measure",
    "an approved review of this version, without open findings",
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, promoted: CommandedCampaign, quiet: Any) -> MadeCampaign:
    """Make a checkout of Kernwright with a campaign whose first iteration a real judge called faster, once."""
    folder, ledger = tmp_path_factory.mktemp("promotion"), promoted.campaign.settings.ledger
    best = promoted.campaign.history().best
    assert best is not None and best.ended is not None and best.ended.verdict_run is not None
    export_runs(ledger, [best.ended.verdict_run], folder / "judged.tar.gz")
    (body,) = recorded_bodies(Ledger(ledger), runs=[best.ended.verdict_run])
    return make_campaign(folder, with_package=True).iterate_once((folder / "judged.tar.gz", body.verdict()), quiet)


def test_a_refusal_lists_everything_that_is_missing(made: MadeCampaign) -> None:
    promotion = Promotion(made.campaign)
    missing = {own.name: own for own in promotion.case().missing}
    assert set(missing) == NAMES
    assert all("kernwright campaign" in own.command for own in missing.values())
    with pytest.raises(NotReady) as refused:
        promotion.promote()
    assert all(name in str(refused.value) for name in NAMES)
    assert git(made.repository, "branch", "--list", promotion.branch) == "", "nothing was written"


ON_BRANCH = """
import json, torch
from kernwright import ops
from kernwright.core.registry import shipped_ops
from kernwright.ops.catalog import dispatcher, explain

def call(batch=1, tokens=9, heads=4, pairs=32, dtype=torch.float32, offset=0):
    torch.manual_seed(0)
    x = torch.randn(batch * tokens * heads * 2 * pairs + offset, dtype=dtype)[offset:]
    cos, sin = torch.randn(tokens, pairs, dtype=dtype), torch.randn(tokens, pairs, dtype=dtype)
    return x.reshape(batch, tokens, heads, 2 * pairs), cos, sin

def outcome(arguments):
    found = explain("rotary", *arguments)
    result, wanted = ops.rotary(*arguments), shipped_ops()["rotary"].reference(*arguments)
    return {
        "chosen": found.chosen.backend,
        "text": str(found),
        "equal": torch.allclose(result, wanted, rtol=1e-6, atol=1e-6),
    }

def with_out(arguments):
    out = torch.full((2, *arguments[0].shape), 7.0)[1].transpose(0, 0)
    result = ops.rotary(*arguments, out=out)
    return result is out and torch.allclose(out, shipped_ops()["rotary"].reference(*arguments), atol=1e-6)

x, cos, sin = call()
compiled = torch.compile(ops.rotary, backend="eager", fullgraph=True)
print(json.dumps({
    "judged": outcome(call(tokens=120)),
    "between": outcome(call(tokens=77)),
    "misaligned": outcome(call(offset=1)),
    "too long": outcome(call(tokens=300)),
    "other heads": outcome(call(heads=3)),
    "half": outcome(call(dtype=torch.float16)),
    "strided": outcome((x.transpose(1, 2).contiguous().transpose(1, 2), cos, sin)),
    "gradient": outcome((x.clone().requires_grad_(), cos, sin)),
    "out": with_out(call()),
    "compiled": compiled(x, cos, sin).equal(ops.rotary(x, cos, sin)),
    "other op": dispatcher("ltx2_split_rotary").backends,
}))
"""


JUDGED_BY_COMMAND = """
from kernwright.cli.main import app
app({words!r})
"""


@pytest.fixture(scope="module")
def on_branch(promoted: CommandedCampaign, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """Run a program with the package of the branch, not with the installed one.

    Return what it found in calls of the op, and the file with the verdict on the op as a contender.
    """
    tree, folder = Promotion(promoted.campaign).worktree, tmp_path_factory.mktemp("branch")
    verdict = folder / "verdict.json"
    words = [
        "judge", promoted.campaign.settings.task, "--candidate", "kernwright", "--baseline", "slow", "--quick",
        "--json", str(verdict), "--ledger", str(folder / "ledger"),
    ]  # fmt: skip
    program = ON_BRANCH + JUDGED_BY_COMMAND.format(words=words)
    environment = os.environ | {"PYTHONPATH": str(tree / "src")}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[0]), verdict


def test_the_branch_holds_the_kernel_with_its_evidence(promoted: CommandedCampaign) -> None:
    campaign, repository = promoted.campaign, promoted.repository
    promotion, history = Promotion(campaign), campaign.history()
    assert promotion.case().runs.missing == []
    check, recorded = history.latest(ModelCheck), history.latest(Promoted)
    assert check is not None and check.improved
    assert check.figures["share"] == pytest.approx(0.01)

    assert git(repository, "rev-parse", "main") == promoted.main, "main is untouched"
    assert git(repository, "status", "--porcelain") == ""
    assert recorded is not None and git(repository, "rev-parse", promotion.branch) == recorded.branch_commit
    shown = git(repository, "show", "--stat", "--format=%B", promotion.branch)
    assert "correct on the full grid" in shown
    kernel = "src/kernwright/ops/rotation/promoted/rotary_cpu"
    assert git(repository, "show", f"{promotion.branch}:{kernel}/kernel.cc") == GOOD["kernel.cc"].strip()
    archive = promotion.worktree / "evidence" / "campaigns" / "turns.tar.xz"
    packed = examine(archive)
    assert packed.problems == []
    assert set(packed.runs) >= set(recorded.verdict_runs)
    with pytest.raises(KernwrightError, match="promoted already"):
        promotion.promote()


def test_a_promoted_kernel_runs_for_the_judged_calls_only(on_branch: tuple[dict[str, Any], Path]) -> None:
    found, _ = on_branch
    assert {name: own["equal"] for name, own in found.items() if isinstance(own, dict)} == dict.fromkeys(
        ("judged", "between", "misaligned", "too long", "other heads", "half", "strided", "gradient"), True
    )
    assert [found[name]["chosen"] for name in ("judged", "between", "misaligned")] == ["cpu"] * 3
    refused = {name: own for name, own in found.items() if isinstance(own, dict) and own["chosen"] == "torch"}
    reasons = {
        "too long": "axis S is 300, judged from 1 to 121", "other heads": "axis H is 3, judged with 4",
        "half": "x is fp16, judged in fp32", "strided": "x has strides", "gradient": "needs a gradient",
    }  # fmt: skip
    assert set(refused) == set(reasons)
    for name, reason in reasons.items():
        assert reason in refused[name]["text"], refused[name]["text"]
    assert found["out"]
    assert found["compiled"]
    assert found["other op"] == ["torch"]


def test_the_judge_accepts_the_promoted_kernel(on_branch: tuple[dict[str, Any], Path]) -> None:
    """The judge runs the op of the branch as a contender: correct by its rule, and by the promoted kernel."""
    _, verdict = on_branch
    (row,) = json.loads(verdict.read_text())["rows"]
    assert row["ran"]["backend"] == "cpu"
    assert row["verdict"] == "faster", row["reasons"]
