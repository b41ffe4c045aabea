"""Template: a candidate whose source has a marked block of constants, one for each parameter of its space.

    // kernwright tune: begin
    #define THREADS 256
    // kernwright tune: end

In Python the lines are `# kernwright tune: begin`, `THREADS = 256`, `# kernwright tune: end`. The block is rewritten
for each configuration; nothing else of the candidate changes. So the judged candidate shows its configuration.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

from kernwright.campaign.tuning.expression import Value
from kernwright.campaign.tuning.space import SPACE_FILE, Configuration, Space, read_space
from kernwright.core.errors import BadFile
from kernwright.tasks.candidate import Candidate, load_candidate

BEGIN, END = "kernwright tune: begin", "kernwright tune: end"
_DEFINED = re.compile(r"#\s*define\s+(\w+)\s+(\S.*?)\s*$")
_ASSIGNED = re.compile(r"(\w+)\s*=\s*(\S.*?)\s*$")


@dataclass(frozen=True)
class Template:
    """A candidate that can be tuned."""

    candidate: Candidate
    space: Space
    source: str  # name of the file with the block

    @classmethod
    def read(cls, folder: Path) -> Template:
        """Return the template of a folder. Raise BadFile if it cannot be tuned."""
        space, candidate = read_space(folder), load_candidate(folder)
        source = space.source or candidate.entry_file
        if source not in candidate.sources:
            problem = f"names {source!r}, which the folder does not hold"
            raise BadFile(folder / SPACE_FILE, "source", problem, "correct it")
        own = cls(candidate, space, source)
        own._split()
        return own

    @property
    def is_python(self) -> bool:
        return self.source.endswith(".py")

    @property
    def text(self) -> str:
        try:
            return self.candidate.sources[self.source].decode("utf-8")
        except UnicodeDecodeError:
            raise BadFile(self.candidate.folder / self.source, "", "is not UTF-8", "convert it to UTF-8") from None

    def _split(self, text: str | None = None) -> tuple[list[str], list[str], list[str]]:
        """Return the lines up to the block, the block, and the lines from its end on."""
        lines = (self.text if text is None else text).splitlines(keepends=True)
        begin = [number for number, line in enumerate(lines) if BEGIN in line]
        end = [number for number, line in enumerate(lines) if END in line]
        if len(begin) != 1 or len(end) != 1 or begin[0] > end[0]:
            raise BadFile(
                self.candidate.folder / self.source, "", f"has no block from {BEGIN!r} to {END!r}",
                "put both lines, as comments, around the constants of the parameters",
            )  # fmt: skip
        return lines[: begin[0] + 1], lines[begin[0] + 1 : end[0]], lines[end[0] :]

    def current(self) -> Configuration | None:
        """Return the configuration of the block; None if it is not one of the space."""
        return self.configuration_in(self.text)

    def configuration_in(self, text: str) -> Configuration | None:
        """Return the configuration in a version of the source; None if it has none of the space."""
        pattern = _ASSIGNED if self.is_python else _DEFINED
        found: dict[str, Value] = {}
        try:
            block = self._split(text)[1]
        except BadFile:
            return None
        for line in block:
            if match := pattern.match(line.strip()):
                found[match[1]] = _read(match[2])
        if not self.is_python:  # C has 0 and 1
            bools = {name for name, each in self.space.parameters.items() if isinstance(each.default, bool)}
            found = {name: bool(value) if name in bools else value for name, value in found.items()}
        return found if self.space.holds(found) else None

    def with_configuration(self, configuration: Configuration, remark: str) -> str:
        """Return the source with another configuration. `remark` is a comment in the block."""
        head, _, tail = self._split()
        sign = "#" if self.is_python else "//"
        lines = [f"{sign} {remark}\n"] if remark else []
        for name, parameter in self.space.parameters.items():
            value = _python(configuration[name]) if self.is_python else _c(configuration[name])
            assigned = f"{name} = {value}" if self.is_python else f"#define {name} {value}"
            lines.append(f"{assigned}  {sign} {parameter.meaning}\n" if parameter.meaning else f"{assigned}\n")
        return "".join([*head, *lines, *tail])


def _python(value: Value) -> str:
    return repr(value)


def _c(value: Value) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def _read(text: str) -> Value:
    """Return the value of a constant, without a comment behind it."""
    text = re.split(r"\s+(?://|/\*|#)", text)[0]
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
    return value if isinstance(value, bool | int | float | str) else text
