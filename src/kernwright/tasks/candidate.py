"""Candidate: a folder with candidate.toml and its sources. The judge reads its bytes and never runs them."""

from __future__ import annotations

import os
import re
import stat
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
    left = MOST_BYTES
    for here, folders, names, descriptor in os.fwalk(folder):
        folders[:] = sorted(set(folders) - IGNORED)
        for name in sorted({*folders, *names} - IGNORED):
            path = Path(here, name)
            mode = os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode
            if stat.S_ISDIR(mode):
                continue
            if not stat.S_ISREG(mode):
                raise BadFile(path, "", "is a link or a special file", "candidates hold plain files only")
            relative = path.relative_to(folder).as_posix()
            if not relative.isprintable():  # this also finds bytes that are no text
                raise BadFile(folder, "", f"holds a file called {relative!r}", "rename it")
            found[relative] = data = _read_beside(descriptor, name, left + 1)
            left -= len(data)
            if left < 0:
                raise BadFile(folder, "", "holds over 64 MiB", "a candidate is its sources: remove build products")
    return found


def _read_beside(folder: int, name: str, most: int) -> bytes:
    """Return the first bytes of a file of an open folder. A link that has just taken its place is not followed."""
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor is no path
        return file.read(most)


def load_candidate(folder: Path) -> Candidate:
    if not folder.is_dir():
        known = [str(file.parent) for file in sorted(folder.parent.glob(f"*/{CANDIDATE_FILE}"))]
        remedy = did_you_mean(str(folder), known, f"a candidate is a folder that holds {CANDIDATE_FILE}")
        raise BadFile(folder, "", "is not a folder", remedy)
    _refuse_misleading_name(folder)
    if (folder / CANDIDATE_FILE).is_symlink():  # its content, which errors quote, may be that of any file
        raise BadFile(folder / CANDIDATE_FILE, "", "is a link", "candidates hold plain files only")
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
