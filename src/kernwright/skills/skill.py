"""Skill: instructions for an agent, as a SKILL.md file with the fields name and description in its front matter."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files

from kernwright.core.errors import BadFile, KernwrightError, did_you_mean

SKILL_FILE = "SKILL.md"
LIBRARY = "library"
_FRONT_MATTER = re.compile(r"---\n(.*?)\n---\n", re.DOTALL)
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
LONGEST_NAME, LONGEST_DESCRIPTION = 64, 1024  # limits of the format


@dataclass(frozen=True)
class Skill:
    """One skill that ships with this version."""

    folder_name: str
    text: str

    @cached_property
    def fields(self) -> dict[str, str]:
        """Return the front matter. Raises BadFile if it is not one that every agent can read."""
        where = f"{self.folder_name}/{SKILL_FILE}"
        found = _FRONT_MATTER.match(self.text)
        if not found:
            raise BadFile(where, "", "has no front matter", "begin with name and description between lines of ---")
        fields = dict(_field(where, line) for line in found[1].splitlines())
        if set(fields) != {"name", "description"}:
            raise BadFile(where, "", f"has the fields {sorted(fields)}", "give name and description")
        name, description = fields["name"], fields["description"]
        if name != self.folder_name or not _NAME.fullmatch(name) or len(name) > LONGEST_NAME:
            raise BadFile(where, "name", f"is {name!r}", f"use the name of the folder, {self.folder_name}")
        if not 0 < len(description) <= LONGEST_DESCRIPTION:
            raise BadFile(where, "description", f"has {len(description)} characters", f"use 1 to {LONGEST_DESCRIPTION}")
        return fields

    @property
    def name(self) -> str:
        return self.fields["name"]

    @property
    def description(self) -> str:
        return self.fields["description"]

    @property
    def digest(self) -> str:
        return text_digest(self.text)


def text_digest(text: str) -> str:
    """Return the SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def _field(where: str, line: str) -> tuple[str, str]:
    """Return a field of the front matter. Values are plain text, without quotes and without nesting."""
    name, separator, value = line.partition(": ")
    if not separator or value[:1] in "\"'[{|>&*!%@`" or ": " in value or " #" in value:
        raise BadFile(where, "", f"cannot be read: {line[:60]!r}", "write `field: plain text` on one line")
    return name, value


def shipped_skills() -> list[Skill]:
    """Return all skills by name."""
    library = files("kernwright.skills").joinpath(LIBRARY)
    folders = sorted(each.name for each in library.iterdir() if each.joinpath(SKILL_FILE).is_file())
    return [Skill(name, library.joinpath(name, SKILL_FILE).read_text(encoding="utf-8")) for name in folders]


def find_skill(name: str) -> Skill:
    """Return the skill of a name; the prefix kernwright- may be left out."""
    known = {skill.name: skill for skill in shipped_skills()}
    found = known.get(name) or known.get(f"kernwright-{name}")
    if found is None:
        raise KernwrightError(
            f"no skill named {name!r}", did_you_mean(name, known, f"the skills are: {', '.join(known)}")
        )
    return found
