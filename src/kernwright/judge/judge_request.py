"""JudgeRequest: the options of one judgement, without torch, so that the client of a server starts fast."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kernwright.judge.protocol.deadlines import DEVICE_DEADLINE_S


@dataclass(frozen=True)
class JudgeRequest:
    """The arguments of one `kernwright judge`."""

    task: str
    candidate: Path | None
    baseline: str = "eager"
    rows: str | None = None
    device: str = "cpu"
    seed: int | None = None
    quick: bool = False
    against_itself: bool = False
    contender: str | None = None  # name of a baseline, or `kernwright` for the shipped ops
    ledger: Path | None = None
    wait_s: float = 0.0
    census: bool | None = None  # list the kernels of a call; default: in full runs and for published baselines
    deadline_s: float = DEVICE_DEADLINE_S
    rounds: int | None = None  # maximum number of rounds; default: the policy's
    metric: str | None = None  # deciding metric: wall, stream or device; default: the policy's
    command: str | None = None  # command line to record; default: that of this process
    output: Callable[[str], None] | None = None  # gets what each worker of the contender printed, when it ends
