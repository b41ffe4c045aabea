"""The checklist of a review, and leads: lines of the sources that a reviewer should look at."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, field_validator

from kernwright.core.plain_text import plain
from kernwright.tasks.files import read_toml

CHECKLIST = Path(__file__).with_name("checklist.toml")
CODE = ("*.py", "*.c", "*.cc", "*.cpp", "*.cu", "*.cuh", "*.h", "*.hpp", "*.inc")
LONGEST = 160  # characters of a line that are shown


class LeadPattern(BaseModel):
    """A pattern of leads: a regular expression for one line."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    pattern: str
    what: str
    files: tuple[str, ...] = CODE

    @field_validator("pattern")
    @classmethod
    def is_a_pattern(cls, pattern: str) -> str:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"is not a regular expression: {error}") from None
        return pattern


class ReviewCheck(BaseModel):
    """One question of a review."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str = Field(pattern=r"^[a-z][a-z-]*$")
    title: str
    question: str
    lead: tuple[LeadPattern, ...] = ()


class Checklist(BaseModel):
    """All questions of a review."""

    model_config = ConfigDict(frozen=True, extra="forbid", ignored_types=(cached_property,))

    check: tuple[ReviewCheck, ...] = Field(min_length=1)

    @cached_property
    def ids(self) -> list[str]:
        return [check.id for check in self.check]


class Lead(BaseModel):
    """A line of a source that a reviewer should look at, and what it may mean."""

    model_config = ConfigDict(frozen=True)

    check: str
    file: str
    line: int
    what: str
    text: str


def read_checklist(path: Path = CHECKLIST) -> Checklist:
    return read_toml(path, Checklist, "each [[check]] has an id, a title and a question")


def leads_in(sources: Mapping[str, bytes], checklist: Checklist) -> list[Lead]:
    """Return the leads of all text files, in the order of the checklist."""
    texts = {name: text for name, data in sources.items() if (text := _text(data)) is not None}
    return [lead for check in checklist.check for lead in _of_check(check, texts)]


def _of_check(check: ReviewCheck, texts: Mapping[str, str]) -> Iterator[Lead]:
    patterns = [(re.compile(each.pattern), each) for each in check.lead]
    for name, text in texts.items():
        for number, line in enumerate(text.splitlines(), start=1):
            for pattern, own in patterns:
                if any(fnmatchcase(name, glob) for glob in own.files) and pattern.search(line):
                    shown = plain(line.strip())
                    yield Lead(check=check.id, file=name, line=number, what=own.what, text=shown[:LONGEST])


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None
