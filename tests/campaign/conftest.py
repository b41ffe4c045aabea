"""Fixtures for campaigns: a real verdict that several campaigns share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from made_promotable import judge_good_kernel

from kernwright.judge.record.verdict import Verdict


@pytest.fixture(scope="session")
def good_verdict(tmp_path_factory: pytest.TempPathFactory, private_tmp: Path, quiet: Any) -> tuple[Path, Verdict]:
    """Judge the good kernel once. Return the ledger of its run, and the verdict."""
    return judge_good_kernel(tmp_path_factory.mktemp("judged"), quiet)
