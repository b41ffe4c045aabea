"""From a request to the policy of its judgement."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernwright.core.errors import KernwrightError
from kernwright.judge.request import JudgeRequest, policy_of
from kernwright.tasks.task import load_task


def test_the_requested_metric_decides_and_the_rest_stays(tiny_folder: Path) -> None:
    task = load_task(tiny_folder)
    for quick in (False, True):
        usual = policy_of(JudgeRequest(task="tiny", candidate=None, quick=quick), task)
        asked = policy_of(JudgeRequest(task="tiny", candidate=None, quick=quick, metric="wall"), task)
        assert asked == usual.model_copy(update={"decides": "wall"}) and usual.decides == task.policy.decides


def test_an_unknown_metric_is_refused(tiny_folder: Path) -> None:
    with pytest.raises(KernwrightError, match="'latency'"):
        policy_of(JudgeRequest(task="tiny", candidate=None, metric="latency"), load_task(tiny_folder))
