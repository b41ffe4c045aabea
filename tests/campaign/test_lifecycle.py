"""The whole way of a kernel with the commands of a user: start, run, review, check of a model, promotion, export."""

from __future__ import annotations

from pathlib import Path

import pytest
from commanded_campaign import CommandedCampaign
from made_promotable import git
from made_sglang_tree import make_sglang_tree

from kernwright.campaign.record import Promoted
from kernwright.ledger.verify import verify

pytestmark = [pytest.mark.slow, pytest.mark.clock]

PLACE = "src/kernwright/ops/rotation/promoted/rotary_cpu"
# Computes everything several times. The number is a parameter of the space.
TEMPLATE = """import torch

# kernwright tune: begin
TIMES = 12
# kernwright tune: end


def rotary(x, cos, sin):
    left, right = x.unflatten(-1, (-1, 2)).unbind(-1)
    c, s = cos[:, None], sin[:, None]
    for _ in range(TIMES):
        y = torch.stack((left * c - right * s, right * c + left * s), -1)
    return y.flatten(-2)
"""
SPACE = "[parameters.TIMES]\nchoices = [12, 1]\ndefault = 12\n"
TOML = 'op = "rotary"\nlanguage = "python"\nentry = "kernel.py:rotary"\n'


def is_on_its_branch(made: CommandedCampaign, file: str) -> None:
    """Check that a file of the best version is on the branch of the promotion, and that nothing else changed."""
    own = made.campaign
    promoted, best = own.history().latest(Promoted), own.history().best
    assert promoted is not None and best is not None and best.edited is not None
    assert promoted.candidate_digest == best.edited.candidate_digest
    shown = git(made.repository, "show", f"{promoted.branch}:{PLACE}/{file}")
    assert shown == (own.solution / file).read_text().strip()
    assert git(made.repository, "rev-parse", "main") == made.main
    assert verify(own.settings.ledger) == []


def test_from_the_start_to_the_export(promoted: CommandedCampaign, tmp_path: Path) -> None:
    is_on_its_branch(promoted, "kernel.cc")
    tree = make_sglang_tree(tmp_path / "sglang")
    promoted.command("export", "--to", "sglang", str(tree), "--apply")
    checked = promoted.command("export", "--to", "sglang", str(tree), "--check")
    assert "the exported copy is the best version" in checked
    promoted.command("artifacts", str(tmp_path / "pull-request"))
    assert (tmp_path / "pull-request" / "README.md").is_file()
    assert verify(promoted.campaign.settings.ledger) == []


def test_the_tuner_finds_a_version_that_is_promoted(tmp_path: Path, private_tmp: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    for name, text in {"candidate.toml": TOML, "kernel.py": TEMPLATE, "space.toml": SPACE}.items():
        (given / name).write_text(text)
    made = CommandedCampaign.started(tmp_path, "--from", str(given))
    assert made.campaign.settings.agent == "tuner"
    made.improve()
    assert "TIMES = 1\n" in (made.campaign.solution / "kernel.py").read_text()
    made.promote("--approve")
    is_on_its_branch(made, "kernel.py")
