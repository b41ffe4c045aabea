"""InstalledSkill: a copy of a skill in a folder of an agent, and its state.

A copy has two more fields in its front matter: the version of Kernwright that it came from, and the digest of the
shipped text. Without these fields, an unedited copy is equal to that text.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Literal

from kernwright.core.errors import EnvironmentProblem, KernwrightError, did_you_mean
from kernwright.core.version import __version__
from kernwright.ledger.files import replacing
from kernwright.skills.skill import SKILL_FILE, Skill, shipped_skills, text_digest

State = Literal["missing", "current", "old", "edited", "foreign"]
_STAMP = re.compile(r"metadata:\n  kernwright-version: (\S+)\n  kernwright-digest: ([0-9a-f]{64})\n")


@dataclass(frozen=True)
class AgentFolders:
    """Where an agent looks for skills."""

    name: str
    title: str
    project: Path
    user: Path


@dataclass(frozen=True)
class InstalledSkill:
    """The place of one skill in one folder, and what is there.

    Attributes:
        state: missing; current; old (an unedited copy of another version); edited by someone; or foreign: a skill of
            the same name that did not come from Kernwright.
        version: the version of Kernwright that the copy names.
    """

    skill: Skill
    folder: Path
    state: State
    version: str | None = None

    @property
    def path(self) -> Path:
        return self.folder / self.skill.name / SKILL_FILE

    @property
    def may_be_replaced(self) -> bool:
        """Return whether the copy can be replaced without losing edits."""
        return self.state in ("missing", "current", "old")

    def install(self, force: bool = False) -> bool:
        """Write the present version. Return False if the copy was left alone because it was edited or is foreign."""
        if not (self.may_be_replaced or force):
            return False
        if self.state == "current":
            return True
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(self.path) as part:
                part.write(stamped(self.skill).encode())
        except OSError as error:
            raise EnvironmentProblem(
                f"{self.path} cannot be written: {error.strerror}", "name a folder that you may write with --dir"
            ) from None
        return True


def stamped(skill: Skill) -> str:
    """Return the text of a copy: the skill with its version and digest in the front matter."""
    start, _, rest = skill.text.removeprefix("---\n").partition("---\n")
    stamp = f"metadata:\n  kernwright-version: {__version__}\n  kernwright-digest: {skill.digest}\n"
    return f"---\n{start}{stamp}---\n{rest}"


def installed_in(folder: Path) -> list[InstalledSkill]:
    """Return the state of every shipped skill in a folder."""
    return [_found(skill, folder) for skill in shipped_skills()]


def _found(skill: Skill, folder: Path) -> InstalledSkill:
    path = folder / skill.name / SKILL_FILE
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return InstalledSkill(skill, folder, "missing")
    except (OSError, UnicodeDecodeError):
        return InstalledSkill(skill, folder, "foreign")
    stamp = _STAMP.search(text)
    if not stamp:
        return InstalledSkill(skill, folder, "foreign")
    original = text[: stamp.start()] + text[stamp.end() :]
    if text_digest(original) != stamp[2]:
        return InstalledSkill(skill, folder, "edited", stamp[1])
    is_current = stamp[2] == skill.digest and stamp[1] == __version__
    return InstalledSkill(skill, folder, "current" if is_current else "old", stamp[1])


def known_agents() -> dict[str, AgentFolders]:
    """Return the agents whose folders are known, by name."""
    table = tomllib.loads(files("kernwright.skills").joinpath("agents.toml").read_text(encoding="utf-8"))
    return {
        name: AgentFolders(name, entry["title"], Path(entry["project"]), Path(entry["user"]).expanduser())
        for name, entry in table.items()
    }


def find_agent_folders(name: str) -> AgentFolders:
    """Return the folders of an agent."""
    known = known_agents()
    if name not in known:
        raise KernwrightError(
            f"--agent {name!r} is not known",
            did_you_mean(name, known, f"use one of: {', '.join(known)}; or name the folder with --dir"),
        )
    return known[name]


def copies_near(project: Path) -> Iterator[tuple[AgentFolders, InstalledSkill]]:
    """Yield the copies in the folders of all agents, of a project and of the user."""
    for agent in known_agents().values():
        for folder in (project / agent.project, agent.user):
            yield from ((agent, copy) for copy in installed_in(folder) if copy.state != "missing")
