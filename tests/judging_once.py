"""Judgements beside other tests: each block is timed once, with few calls.

A judge repeats blocks that waited for a processor, and starts a row over with longer blocks on a restless machine.
Beside other tests the machine stays busy, so that a judgement takes several times as long and its times mean no more.
Tests whose outcome depends on time have the mark `clock` or `whole_machine` and run with all repeats, when no other
test has their processor.
"""

from __future__ import annotations

import functools
import os
import sys
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from kernwright.exploits import trial
from kernwright.judge.contest import worker_spec
from kernwright.judge.device.cpu import CpuDevice

sys.path.append(str(Path(__file__).with_name("ops")))
from builds import contents_of, made_once

MOST_CALLS = 2  # in a block: the fewest that a judge makes, since checking each call takes most of the time


def judge_once(patch: pytest.MonkeyPatch) -> None:
    """Let the judges of this process, and of processes that try exploits, repeat nothing."""
    repeat_nothing(patch)
    build_once(patch)
    patch.setattr(CpuDevice, "max_slots", MOST_CALLS)
    patch.setattr(trial, "_judge_here", try_once)


def repeat_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("kernwright.judge.rounds.timing.MOST_REDONE", 0)
    patch.setattr("kernwright.judge.rounds.sizing.spread", lambda _: 0.0)


def build_once(patch: pytest.MonkeyPatch) -> None:
    """Share the judge's native loop, which each process builds for itself otherwise. It takes seconds."""
    import tvm_ffi

    build = worker_spec._compiled_loop
    source = Path(worker_spec.__file__).parents[1] / "worker" / "native_loop.cc"
    name = f"native_loop-{tvm_ffi.__version__}-{contents_of([source])[:24]}.so"

    def make(folder: Path) -> Path:
        made = folder / name
        if not made.exists():
            partial = made.with_suffix(f".{os.getpid()}")
            partial.write_bytes(build())
            partial.replace(made)
        return made

    patch.setattr(worker_spec, "_compiled_loop", functools.cache(lambda: made_once(name, make).read_bytes()))


def try_once(pipe: Connection) -> None:
    """Try exploits in a process of their own, with as many calls as usual: some attacks are wrong in few of them."""
    with pytest.MonkeyPatch.context() as patch:
        judge_here = trial._judge_here
        repeat_nothing(patch)
        build_once(patch)
        judge_here(pipe)
