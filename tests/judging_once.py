"""Judgements beside other tests: each block is timed once, with few calls.

A judge repeats blocks that waited for a processor, and starts a row over with longer blocks on a restless machine.
Beside other tests the machine stays busy, so that a judgement takes several times as long and its times mean no more.
Tests whose outcome depends on time have the mark `clock` and run alone, with all repeats.
"""

from __future__ import annotations

from multiprocessing.connection import Connection

import pytest

from kernwright.exploits import trial
from kernwright.judge.device.cpu import CpuDevice

MOST_CALLS = 2  # in a block: the fewest that a judge makes, since checking each call takes most of the time


def judge_once(patch: pytest.MonkeyPatch) -> None:
    """Let the judges of this process, and of processes that try exploits, repeat nothing."""
    repeat_nothing(patch)
    patch.setattr(CpuDevice, "max_slots", MOST_CALLS)
    patch.setattr(trial, "_judge_here", try_once)


def repeat_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("kernwright.judge.rounds.timing.MOST_REDONE", 0)
    patch.setattr("kernwright.judge.rounds.sizing.spread", lambda _: 0.0)


def try_once(pipe: Connection) -> None:
    """Try exploits in a process of their own, with as many calls as usual: some attacks are wrong in few of them."""
    with pytest.MonkeyPatch.context() as patch:
        judge_here = trial._judge_here
        repeat_nothing(patch)
        judge_here(pipe)
