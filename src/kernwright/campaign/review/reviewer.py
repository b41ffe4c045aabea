"""Run a program as a reviewer. It reads what its user may read, and writes only to the folder of the review."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

from kernwright.campaign.agents.agent_run import AgentRun
from kernwright.campaign.agents.guard.agent_folder import remove_unsafe
from kernwright.campaign.agents.preset import find_preset
from kernwright.campaign.agents.walls import Walls
from kernwright.campaign.campaign import Campaign
from kernwright.core.errors import EnvironmentProblem, KernwrightError
from kernwright.judge.system.landlock import landlock_version

PROMPT = (
    "Review the GPU kernel in this folder. Read README.md and checklist.md first, then diff.patch and all files in "
    "candidate/. Answer every question of the checklist for yourself. Change nothing but findings.json, which you "
    "write as README.md says. Then stop."
)
DEFAULT_LIMIT_S = 3600.0


def run_reviewer(
    campaign: Campaign,
    folder: Path,
    name: str,
    command: str | None,
    time_limit_s: float | None,
    heard: Callable[[str], None],
) -> bytes:
    """Run a reviewer to its end and return its transcript.

    The program gets the folder of the review as its working directory, and its path as KERNWRIGHT_REVIEW. It can write
    only there, to a scratch folder, and to the places that its preset names. Without landlock it runs only for a
    campaign that was started without walls.
    """
    preset = find_preset(name, campaign.settings.repository, command)
    has_walls = landlock_version() > 0
    if campaign.settings.agent_walls and not has_walls:
        raise EnvironmentProblem(
            "this kernel has no landlock, so that a reviewer could write anywhere",
            "review the version yourself: --approve, or --reject --why TEXT",
        )
    with tempfile.TemporaryDirectory(prefix="kernwright-review-") as scratch:
        values = {
            "prompt": PROMPT,
            "prompt_file": str(folder / "README.md"),
            "folder": str(folder),
            "scratch": scratch,
            "cost_limit": "0",
        }
        places = [str(folder), scratch, *map(str, preset.written_places())]
        limit_s = DEFAULT_LIMIT_S if time_limit_s is None else time_limit_s
        ending = AgentRun(
            command=preset.command_line(values, has_walls, has_cost_limit=False),
            folder=folder,
            environment={
                **os.environ, **preset.environment,
                "TMPDIR": scratch, "KERNWRIGHT_CAMPAIGN": campaign.name, "KERNWRIGHT_REVIEW": str(folder),
            },
            walls=Walls(tuple(places), preset.network) if has_walls else None,
            time_limit_s=limit_s,
            cost_pattern=re.compile(preset.cost_pattern) if preset.cost_pattern else None,
        ).run(heard)  # fmt: skip
        remove_unsafe(folder, folder / "candidate")
    last = ending.transcript.decode(errors="replace").strip().splitlines()[-1:]
    if ending.is_timed_out:
        raise KernwrightError(f"the reviewer {name} did not end within {limit_s:.0f} s", "raise --time-limit")
    if ending.status != 0:
        raise KernwrightError(
            f"the reviewer {name} ended with status {ending.status}: {' '.join(last) or 'no output'}",
            "run its command in the folder of the review to see why",
        )
    return ending.transcript
