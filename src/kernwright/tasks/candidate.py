"""Candidate: a folder with candidate.toml and its sources. The judge reads its bytes and never runs them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from kernwright.core.digest import folder_digest
from kernwright.core.errors import BadFile, FileProblems, did_you_mean
from kernwright.core.plain_text import comparable_name, plain
from kernwright.tasks.files import read_toml, toml_line

CANDIDATE_FILE = "candidate.toml"
SHIPPED = "kernwright"  # the name of the ops of this package as a contender
Language = Literal["python", "triton", "cuda", "cpp", "cutedsl"]
Style = Literal["returns", "writes"]
NATIVE: frozenset[Language] = frozenset({"cuda", "cpp"})
IGNORED = {"__pycache__", ".git", ".pytest_cache", ".ruff_cache", ".mypy_cache"}
MOST_BYTES = 64 * 2**20


class BuildFlags(BaseModel):
    """Extra flags of a native build."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sources: tuple[str, ...] = Field(default=(), description="further files to compile beside the entry's")
    cflags: tuple[str, ...] = ()
    cuda_cflags: tuple[str, ...] = ()
    ldflags: tuple[str, ...] = ()


class CandidateFile(BaseModel):
    """candidate.toml, as its author wrote it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    op: str
    language: Language
    entry: Annotated[str, Field(pattern=r"^[^:]+:[A-Za-z_][A-Za-z0-9_]*$", description="file:function")]
    style: Style | None = Field(
        default=None, description="returns (allocates its outputs) or writes (takes them); native code writes"
    )
    build: BuildFlags = BuildFlags()


class Candidate(BaseModel):
    """A candidate as found on disk."""

    model_config = ConfigDict(frozen=True, ignored_types=(cached_property,))

    folder: Path
    file: CandidateFile

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def entry_file(self) -> str:
        return self.file.entry.partition(":")[0]

    @property
    def entry_function(self) -> str:
        return self.file.entry.partition(":")[2]

    @property
    def style(self) -> Style:
        return self.file.style or ("writes" if self.file.language in NATIVE else "returns")

    @cached_property
    def sources(self) -> dict[str, bytes]:
        """Return every file of the folder by relative path."""
        return read_sources(self.folder)

    @cached_property
    def digest(self) -> str:
        return folder_digest(self.sources)


def read_sources(folder: Path) -> dict[str, bytes]:
    """Return the files of a candidate's folder by relative path. Raise BadFile for what no candidate may hold."""
    found: dict[str, bytes] = {}
    total = 0
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        if IGNORED & set(relative.parts) or (path.is_dir() and not path.is_symlink()):
            continue
        if path.is_symlink() or not path.is_file():
            raise BadFile(path, "", "is a link or a special file", "candidates hold plain files only")
        if not relative.as_posix().isprintable():  # this also finds bytes that are no text
            raise BadFile(folder, "", f"holds a file called {relative.as_posix()!r}", "rename it")
        total += path.stat().st_size
        if total > MOST_BYTES:
            raise BadFile(folder, "", "holds over 64 MiB", "a candidate is its sources: remove build products")
        found[relative.as_posix()] = path.read_bytes()
    return found


def load_candidate(folder: Path) -> Candidate:
    if not folder.is_dir():
        known = [str(file.parent) for file in sorted(folder.parent.glob(f"*/{CANDIDATE_FILE}"))]
        remedy = did_you_mean(str(folder), known, f"a candidate is a folder that holds {CANDIDATE_FILE}")
        raise BadFile(folder, "", "is not a folder", remedy)
    _refuse_misleading_name(folder)
    file = read_toml(folder / CANDIDATE_FILE, CandidateFile, "write op, language and entry into it")
    candidate = Candidate(folder=folder.resolve(), file=file)
    problems = FileProblems()
    problems.add(_missing_sources(candidate, folder / CANDIDATE_FILE))
    problems.raise_any()
    return candidate


def _missing_sources(candidate: Candidate, path: Path) -> Iterator[BadFile]:
    text = candidate.sources[CANDIDATE_FILE].decode()
    known = [name for name in candidate.sources if name != CANDIDATE_FILE]
    named = [("entry", candidate.entry_file), *(("build.sources", name) for name in candidate.file.build.sources)]
    for field, name in named:
        if re.search(r"(^/|\.\.)", name) or name not in candidate.sources:
            remedy = did_you_mean(name, known, f"use one of: {', '.join(known) or '(no sources)'}")
            where = f"{path}:{toml_line(text, field.split('.'))}"
            yield BadFile(where, field, f"names {name!r}, which the folder does not hold", remedy)


def _refuse_misleading_name(folder: Path) -> None:
    """Raise an error for a name that a reader of verdicts could take for another one.

    A candidate has the name of its folder, and the verdicts of a candidate called `kernwright` would be read as those
    of the ops that ship.
    """
    name = folder.resolve().name
    remedy = "rename the folder: a candidate has the name of its folder"
    if comparable_name(name) == comparable_name(SHIPPED):
        same = "has" if name == SHIPPED else "can be taken for"
        raise BadFile(
            folder, "", f"{same} the name {SHIPPED}, which stands for the ops that this package ships", remedy
        )
    if plain(name) != name:
        raise BadFile(folder, "", f"has invisible or control characters in its name: {plain(name)}", remedy)
