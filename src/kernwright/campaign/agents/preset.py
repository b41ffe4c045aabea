"""AgentPreset: how to run a program as an agent. Presets are data, which a user can replace or add to."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, RootModel, field_validator

from kernwright.campaign.agents.walls import Network
from kernwright.core.errors import EnvironmentProblem, KernwrightError, did_you_mean
from kernwright.tasks.files import read_toml

SHIPPED_PRESETS = Path(__file__).with_name("presets.toml")
COMMAND = "command"
PROMPT = (
    "Work on the kernel campaign in this folder. Read prompt.md and ITERATIONS.md first. Do one iteration: choose one "
    "idea that was not tried, edit only files in solution/, check your edit as prompt.md says, and write idea.json "
    "with the keys hypothesis, direction (a short tag), predicted_ratio (expected speedup over the best version) and "
    "note. Then stop. Directions that are refused now: {avoid}."
)


class AgentPreset(BaseModel):
    """One table of agents.toml."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    description: str = ""
    command: tuple[str, ...] = Field(description="command line with placeholders")
    command_without_walls: tuple[str, ...] = Field(default=(), description="command line for a run without walls")
    cost_limit_options: tuple[str, ...] = Field(default=(), description="added if the campaign has a limit of cost")
    cost_pattern: str | None = Field(default=None, description="regular expression; group 1 is the cost in dollars")
    network: Network = "none"
    writes: tuple[str, ...] = Field(default=(), description="further folders and files that the program writes")
    environment: Mapping[str, str] = Field(default_factory=dict)
    skill: str | None = Field(default=None, description="file in the agent's folder that receives the tool's skill")
    remedy: str = Field(default="", description="what to do if the program is missing")

    @field_validator("cost_pattern")
    @classmethod
    def pattern_has_a_group(cls, pattern: str | None) -> str | None:
        try:
            if pattern is not None and re.compile(pattern).groups < 1:
                raise ValueError("has no group for the number")
        except re.error as error:
            raise ValueError(f"is not a regular expression: {error}") from None
        return pattern

    @field_validator("skill")
    @classmethod
    def skill_stays_inside(cls, skill: str | None) -> str | None:
        if skill is not None and (skill.startswith("/") or ".." in Path(skill).parts):
            raise ValueError("leaves the agent's folder")
        return skill

    def find_program(self, name: str) -> None:
        """Raise EnvironmentProblem if the program of this preset is missing."""
        if not self.command:
            raise KernwrightError(
                f"the agent {name} has no command line",
                'give one: --agent command --agent-command "python my_agent.py"',
            )
        if shutil.which(self.command[0]) is None:
            raise EnvironmentProblem(
                f"the program {self.command[0]} of the agent {name} is not on PATH",
                self.remedy or "install it, or name it by its absolute path",
            )

    def command_line(self, values: Mapping[str, str], with_walls: bool, has_cost_limit: bool) -> list[str]:
        words = self.command if with_walls or not self.command_without_walls else self.command_without_walls
        options = self.cost_limit_options if has_cost_limit else ()
        return [_filled(word, values) for word in (*words, *options)]

    def written_places(self) -> list[Path]:
        """Return the folders and files outside the campaign that the program may write, as far as they exist."""
        return [path for word in self.writes if (path := Path(os.path.expandvars(word)).expanduser()).exists()]


class _PresetFile(RootModel[dict[str, AgentPreset]]):
    pass


def _filled(word: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        word = word.replace(f"{{{name}}}", value)
    return word


def preset_files(repository: Path) -> list[Path]:
    """Return the files that can define presets. Later ones replace tables of earlier ones."""
    configuration = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    own = [Path(configuration, "kernwright", "agents.toml"), repository / ".kernwright" / "agents.toml"]
    return [SHIPPED_PRESETS, *(path for path in own if path.is_file())]


def read_presets(repository: Path) -> dict[str, AgentPreset]:
    found: dict[str, AgentPreset] = {}
    for path in preset_files(repository):
        found |= read_toml(path, _PresetFile, "each table is an agent: see docs/campaign_agents.md").root
    return found


def find_preset(name: str, repository: Path, command: str | None) -> AgentPreset:
    """Return a preset whose program exists. `command` replaces the command line of the preset `command`."""
    presets = read_presets(repository)
    if name not in presets:
        known = ["tuner", "human", *presets]
        raise KernwrightError(
            f"no agent is called {name!r}", did_you_mean(name, known, f"use one of: {', '.join(known)}")
        )
    preset = presets[name]
    if name == COMMAND and command is not None:
        try:
            words = shlex.split(command)
        except ValueError as error:
            raise KernwrightError(f"--agent-command cannot be read: {error}", "quote it as a shell would") from None
        preset = preset.model_copy(update={"command": tuple(words)})
    preset.find_program(name)
    return preset
