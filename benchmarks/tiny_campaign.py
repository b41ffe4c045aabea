"""A repository with a tiny task, and an agent that is a real program, for tests and benchmarks of campaigns."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kernwright.campaign.agents.agent import AgentResult, Assignment
from kernwright.campaign.campaign import Campaign
from kernwright.campaign.record import Idea
from kernwright.campaign.start.plan import CampaignPlan
from kernwright.campaign.start.start import start_campaign
from kernwright.judge.rounds.progress import Progress

TASK = """
name = "tiny"
title = "x * 2"
origin = "made up for the tests"
definitions = "definitions.py"

[tolerance]
fp32 = { atol = 1e-5, rtol = 1e-5 }

[timing]
block_ms = 0.5
quads_per_round = 8
first_look = 1
max_rounds = 4
"""
OPS = """
from torch import Tensor
from kernwright.core.op import define

@define(outputs=["y"], activations=["x"])
def twice(x: Tensor) -> Tensor:
    return x * 2
"""
# Sleeping takes no processor time and is hardly slower on a busy machine, where a gain must be clear, too.
SLEEP_MS = 2
BASELINES = f"""
import time

def slow(op):
    def run(x):
        time.sleep({SLEEP_MS / 1000})
        return x * 2
    return run
"""
ROW = {
    "id": "r64", "op": "twice", "set": "smoke", "axes": {"S": 8, "D": 64},
    "inputs": {"x": {"shape": ["S", "D"], "dtype": "fp32"}}, "outputs": {"y": {"shape": ["S", "D"], "dtype": "fp32"}},
    "bytes_min": 4096,
}  # fmt: skip


def kernel(sleep_ms: float, result: str = "x * 2") -> str:
    """Return a kernel that sleeps before it computes."""
    sleep = f"    time.sleep({sleep_ms / 1000})\n" if sleep_ms else ""
    return f"import time\n\ndef twice(x):\n{sleep}    return {result}\n"


# The starting version sleeps briefly: the judge makes thousands of calls of it in a row.
CANDIDATE = {
    "candidate.toml": 'op = "twice"\nlanguage = "python"\nentry = "kernel.py:twice"\n',
    "kernel.py": kernel(0.5),
}


def git(folder: Path, *words: str) -> str:
    own = ("-c", "user.name=A Person", "-c", "user.email=person@example.com", "-c", "init.defaultBranch=main")
    ended = subprocess.run(["git", *own, "-C", str(folder), *words], capture_output=True, text=True, check=True)
    return ended.stdout


def make_repository(folder: Path) -> Path:
    """Make a git repository with one commit."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q")
    (folder / "model.py").write_text("print('a model')\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "First commit")
    return folder


def make_task(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "task.toml").write_text(TASK)
    (folder / "definitions.py").write_text(OPS)
    (folder / "baselines.py").write_text(BASELINES)
    (folder / "workloads.jsonl").write_text(json.dumps(ROW) + "\n")
    return folder


def make_candidate(folder: Path, files: Mapping[str, str] = CANDIDATE) -> Path:
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def make_campaign(folder: Path, **options: object) -> Campaign:
    """Start a campaign about the tiny task in a new repository."""
    repository, task = make_repository(folder / "project"), make_task(folder / "tiny")
    given = {"task": str(task), "name": "double", "baseline": "slow", "agent": "program"} | options
    return start_campaign(repository, CampaignPlan(**given))  # type: ignore[arg-type]


PROGRAM = """
import json, os, sys
plan = json.load(open(sys.argv[1]))
step = plan[(int(os.environ["KERNWRIGHT_ITERATION"]) - 1) % len(plan)]
for name, text in step["files"].items():
    open(os.path.join("solution", name), "w").write(text)
json.dump(step["idea"], open("idea.json", "w"))
print("edited", *step["files"])
"""


@dataclass(frozen=True)
class ProgramAgent:
    """An agent that is a program: it writes the files of a plan, a different part in each iteration."""

    plan: Path
    name: str = "program"

    def edit(self, assignment: Assignment, progress: Progress) -> AgentResult:
        began, folder = time.monotonic(), assignment.campaign.agent_folder
        ended = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(self.plan)], cwd=folder, capture_output=True, check=True,
            env={"KERNWRIGHT_ITERATION": str(assignment.number)},
        )  # fmt: skip
        said = json.loads((folder / "idea.json").read_text())
        (folder / "idea.json").unlink()
        seconds = time.monotonic() - began
        return AgentResult(ending="finished", idea=Idea(**said), seconds=seconds, cost_usd=0.5, transcript=ended.stdout)


def write_plan(path: Path, *steps: tuple[str, str, float | None]) -> Path:
    """Write the plan of a program: for each iteration the kernel, the direction and the prediction."""
    plan = [
        {
            "files": {"kernel.py": text},
            "idea": {"hypothesis": f"try {direction}", "direction": direction, "predicted_ratio": predicted},
        }
        for text, direction, predicted in steps
    ]
    path.write_text(json.dumps(plan))
    return path
