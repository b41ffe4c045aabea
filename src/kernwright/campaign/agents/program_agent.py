"""ProgramAgent: a program edits the candidate, behind walls and under the guard."""

from __future__ import annotations

import os
import re
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from kernwright.campaign.agents.agent import AgentResult, Assignment
from kernwright.campaign.agents.agent_run import AgentRun, RunEnding
from kernwright.campaign.agents.guard.file_states import has_changed, read_states
from kernwright.campaign.agents.guard.guard import Guard
from kernwright.campaign.agents.idea_file import IDEA_FILE, StatedIdea, take_idea
from kernwright.campaign.agents.preset import PROMPT, AgentPreset
from kernwright.campaign.agents.walls import Walls
from kernwright.campaign.removal import remove
from kernwright.core.errors import EnvironmentProblem
from kernwright.core.plain_text import plain
from kernwright.judge.rounds.progress import Progress
from kernwright.judge.system.landlock import landlock_version

SKILL = Path(__file__).with_name("skill.md")
NOTES = "context"  # folder for the agent's notes, which are kept from iteration to iteration
MOST_REASON = 500


@dataclass(frozen=True)
class ProgramAgent:
    """A program that a preset describes."""

    name: str
    preset: AgentPreset
    with_walls: bool = True

    def edit(self, assignment: Assignment, progress: Progress) -> AgentResult:
        campaign = assignment.campaign
        if self.with_walls and landlock_version() == 0:
            raise EnvironmentProblem(
                "this kernel has no landlock, so that an agent could write anywhere",
                "start the campaign without walls, and run it on a machine that holds nothing else of value",
            )
        progress.phase(f"agent {self.name}, iteration {assignment.number}", 0)
        started_at = time.monotonic()
        guard = Guard(campaign, self.with_walls)
        self._lay_out(campaign.agent_folder)
        before = read_states(campaign.solution, keep=True)
        scratch = Path(tempfile.mkdtemp(prefix="kernwright-agent-"))
        try:
            ending = self._run(assignment, scratch).run(progress.step)
        except BaseException:
            guard.undo()  # an interrupted agent may have changed something, too
            raise
        finally:
            with suppress(OSError):
                remove(scratch)
        tampering = guard.undo()
        stated = take_idea(campaign.agent_folder)
        put_back = guard.put_back_generated()
        findings = _Findings(ending, stated, tampering, put_back, has_changed(before, campaign.solution))
        return self._result(findings, time.monotonic() - started_at, assignment)

    def _lay_out(self, folder: Path) -> None:
        """Prepare the agent's folder: no idea of an earlier run, a folder for notes, and the skill of the preset."""
        remove(folder / IDEA_FILE)
        if not (folder / NOTES).is_dir():
            remove(folder / NOTES)
            (folder / NOTES).mkdir()
        if self.preset.skill is not None:
            target = folder / self.preset.skill
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(SKILL.read_bytes())

    def _run(self, assignment: Assignment, scratch: Path) -> AgentRun:
        campaign, limit = assignment.campaign, assignment.cost_limit_usd
        avoid = ",".join(assignment.avoid_directions)
        values = {
            "prompt": PROMPT.replace("{avoid}", avoid or "none"),
            "prompt_file": str(campaign.agent_folder / "prompt.md"),
            "folder": str(campaign.agent_folder),
            "scratch": str(scratch),
            "cost_limit": "" if limit is None else f"{limit:.2f}",
        }
        own = {
            "KERNWRIGHT_CAMPAIGN": campaign.name,
            "KERNWRIGHT_ITERATION": str(assignment.number),
            "KERNWRIGHT_AVOID": avoid,
            "KERNWRIGHT_LEDGER": str(scratch / "ledger"),  # quick judgements of the agent are not evidence
            "TMPDIR": str(scratch),
            "PWD": str(campaign.agent_folder),
        }
        writes = (campaign.agent_folder, scratch, *_lock_file(campaign.settings.device), *self.preset.written_places())
        pattern = self.preset.cost_pattern
        return AgentRun(
            command=self.preset.command_line(values, self.with_walls, limit is not None),
            folder=campaign.agent_folder,
            environment=os.environ | dict(self.preset.environment) | own,
            walls=Walls(tuple(map(str, writes)), self.preset.network) if self.with_walls else None,
            time_limit_s=assignment.time_limit_s,
            cost_limit_usd=limit,
            cost_pattern=re.compile(pattern) if pattern else None,
        )

    def _result(self, found: _Findings, seconds: float, assignment: Assignment) -> AgentResult:
        run, stated = found.run, found.stated
        cost = stated.cost_usd if run.cost_usd is None else run.cost_usd
        notes = [stated.note] * bool(stated.note) + [stated.problem] * bool(stated.problem)
        if found.put_back:
            notes.append(f"generated files were restored: {', '.join(found.put_back)}")
        result = AgentResult(
            ending="finished",
            idea=stated.idea,
            note="; ".join(notes),
            seconds=seconds,
            cost_usd=cost,
            transcript=self._headed(run),
        )
        limit = assignment.cost_limit_usd
        if found.tampering:
            # The sentences name files, and names of files are foreign text.
            return replace(result, ending="tampered", reason=plain("the agent changed " + "; ".join(found.tampering)))
        if run.is_timed_out:
            return replace(result, ending="timed_out", reason=f"the time limit is {assignment.time_limit_s:.0f} s")
        if limit is not None and cost is not None and cost > limit:
            return replace(
                result, ending="over_cost", reason=f"the agent cost {cost:.2f} USD, the limit is {limit:.2f}"
            )
        if run.status != 0:
            return replace(result, ending="failed", reason=f"{_status_text(run.status)}{_last_line(run.transcript)}")
        if not found.has_changed:
            return replace(result, ending="no_change", reason="solution/ is as it was")
        return result

    def _headed(self, run: RunEnding) -> bytes:
        walls = "behind walls" if self.with_walls else "WITHOUT WALLS: changes of protected files were only detected"
        return f"kernwright: agent {self.name}, {walls}\n".encode() + run.transcript


def _lock_file(device: str) -> list[Path]:
    """Return the file that judges lock, so that quick judgements of an agent take turns with all others."""
    path = Path(os.environ.get("KERNWRIGHT_LOCKS", "/tmp")) / f"kernwright-{device.replace(':', '-')}.lock"
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666))
    except OSError:
        return []  # the judge names the problem
    return [path]


@dataclass(frozen=True)
class _Findings:
    run: RunEnding
    stated: StatedIdea
    tampering: list[str]
    put_back: list[str]
    has_changed: bool


def _status_text(status: int) -> str:
    return f"it ended with signal {status - 128}" if status > 128 else f"it ended with status {status}"


def _last_line(transcript: bytes) -> str:
    lines = [line for line in transcript.decode(errors="replace").splitlines() if line.strip()]
    return f": {plain(lines[-1].strip())[:MOST_REASON]}" if lines else ""
