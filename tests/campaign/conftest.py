"""Fixtures for campaigns: a real verdict that several campaigns share, and a campaign that was carried to its end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from commanded_campaign import REVIEWED_BY_PROGRAM, CommandedCampaign
from made_promotable import judge_good_kernel

from kernwright.judge.record.verdict import Verdict


@pytest.fixture(scope="session")
def good_verdict(tmp_path_factory: pytest.TempPathFactory, private_tmp: Path, quiet: Any) -> tuple[Path, Verdict]:
    """Judge the good kernel once. Return the ledger of its run, and the verdict."""
    return judge_good_kernel(tmp_path_factory.mktemp("judged"), quiet)


@pytest.fixture(scope="session")
def promoted(tmp_path_factory: pytest.TempPathFactory, private_tmp: Path) -> CommandedCampaign:
    """Carry a campaign with a program as its agent from the start to the promotion, with the commands of a user."""
    made = CommandedCampaign.with_agent(tmp_path_factory.mktemp("promoted"))
    made.improve()
    made.promote(*REVIEWED_BY_PROGRAM)
    return made
