"""WikiPage: one page of the wiki, with its front matter and its sections."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from kernwright.core.errors import BadFile

FIELDS = ("title", "topic", "bottleneck", "architectures", "ops", "languages", "evidence")
LISTS = ("bottleneck", "architectures", "ops", "languages", "evidence")
OPTIONAL = {"languages"}
_HEADING = re.compile(r"^(#{1,6})\s+(.*)$")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_FENCE = re.compile(r"^\s*(```|~~~)")


@dataclass(frozen=True)
class WikiSection:
    """A heading with the text up to the next heading. The text before the first heading has the heading ""."""

    heading: str
    text: str
    line: int


@dataclass(frozen=True, kw_only=True)
class WikiPage:
    """One page.

    Attributes:
        name: the file's name without its ending; the page is shown and linked by it.
        topic: the subject in a few words, which the search weighs like the title.
        bottlenecks: the bounds, as `kernwright ncu` names them, that the page helps against; the main one first.
        architectures: names such as sm_90, all (GPUs), cpu.
        ops: groups of ops (vocabulary.toml), names of ops, or any.
        languages: languages of candidates, if the page is only about these.
        evidence: generated pages below docs/, runs and public sources that support the claims.
    """

    name: str
    path: Path
    title: str
    topic: str
    bottlenecks: tuple[str, ...]
    architectures: tuple[str, ...]
    ops: tuple[str, ...]
    languages: tuple[str, ...]
    evidence: tuple[str, ...]
    body: str
    body_line: int
    sections: tuple[WikiSection, ...]

    @property
    def summary(self) -> str:
        """Return the first paragraph as one line."""
        text = next((section.text for section in self.sections if section.text.strip()), "")
        return _LINK.sub(r"\1", " ".join(text.strip().split("\n\n")[0].split()))


def read_page(path: Path) -> WikiPage:
    """Return the page in a file. Raises BadFile if its front matter is missing, incomplete or has an unknown field."""
    text = path.read_text(encoding="utf-8")
    fields, body_line = _front_matter(path, text.splitlines())
    body = "\n".join(text.splitlines()[body_line:])
    return WikiPage(
        name=path.stem,
        path=path,
        title=str(fields["title"]),
        topic=str(fields["topic"]),
        bottlenecks=tuple(fields["bottleneck"]),
        architectures=tuple(fields["architectures"]),
        ops=tuple(fields["ops"]),
        languages=tuple(fields.get("languages", ())),
        evidence=tuple(fields["evidence"]),
        body=body,
        body_line=body_line,
        sections=tuple(sections_of(body, body_line)),
    )


def sections_of(body: str, first_line: int = 0) -> list[WikiSection]:
    """Return the sections of a Markdown text. A heading in a code block is text."""
    found: list[WikiSection] = []
    heading, start, kept, fenced = "", first_line + 1, list[str](), False
    for number, line in enumerate(body.splitlines(), start=first_line + 1):
        fenced ^= bool(_FENCE.match(line))
        match = None if fenced else _HEADING.match(line)
        if match:
            found.append(WikiSection(heading, "\n".join(kept), start))
            heading, start, kept = match[2].strip(), number, []
        else:
            kept.append(line)
    found.append(WikiSection(heading, "\n".join(kept), start))
    return [section for section in found if section.heading or section.text.strip()]


def _front_matter(path: Path, lines: list[str]) -> tuple[dict[str, str | list[str]], int]:
    """Return the fields and the number of lines of the front matter: `key: text` or `key: [a, b]` between two `---`."""
    if not lines or lines[0].strip() != "---" or "---" not in [line.strip() for line in lines[1:]]:
        raise BadFile(path, "", "the front matter is missing", "start the page with --- , its fields, and ---")
    end = 1 + [line.strip() for line in lines[1:]].index("---")
    fields: dict[str, str | list[str]] = {}
    for line in lines[1:end]:
        key, colon, value = (part.strip() for part in line.partition(":"))
        if not colon or key not in FIELDS:
            raise BadFile(path, key, "is no field of the front matter", f"the fields are {', '.join(FIELDS)}")
        is_list = value.startswith("[") and value.endswith("]")
        if is_list != (key in LISTS):
            raise BadFile(path, key, f"got {value!r}", "write [a, b]" if key in LISTS else "write plain text")
        parts = [each.strip() for each in value[1:-1].split(",") if each.strip()]
        fields[key] = parts if is_list else value.strip('"')
    missing = [name for name in FIELDS if name not in fields and name not in OPTIONAL]
    if missing:
        raise BadFile(path, missing[0], "is missing in the front matter", f"write {missing[0]}: ...")
    return fields, end + 1
