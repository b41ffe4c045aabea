"""The tools of candidates: write one, and read one."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import threading
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field

from kernwright.core.errors import EnvironmentProblem, KernwrightError
from kernwright.mcp.answer import NextCall, ToolAnswer, call
from kernwright.mcp.folders import CANDIDATES, AllowedFolders, NotAllowed
from kernwright.tasks.candidate import CANDIDATE_FILE, Candidate, load_candidate
from kernwright.tasks.catalog import list_tasks
from kernwright.tasks.summary import TASK_FILE, TaskSummary

MOST_FILES = 64
MOST_FILE_BYTES = 1 << 20
MOST_BYTES = 4 << 20
MOST_SHOWN = 64 << 10  # characters of a file that an answer holds
MOST_TASKS = 3
_NAME = re.compile(r"[A-Za-z0-9_][\w.-]{0,99}", re.ASCII)
_DEEPEST = 4
EXAMPLE = """op = "norm_scale_shift"\\nlanguage = "cpp"\\nentry = "kernel.cc:run"\\n"""


class FileEntry(BaseModel):
    """A file of a candidate."""

    name: str
    bytes: int


class CandidateCard(ToolAnswer):
    """A candidate on the disk."""

    folder: str = Field(description="the folder to name in calls of judge")
    op: str
    language: str
    entry: str
    style: str
    digest: str
    files: list[FileEntry]
    text: str | None = Field(default=None, description="content of the file that was asked for")


class CandidateTools:
    """Writes candidates below `candidates/` of a root, and nowhere else, and reads them."""

    def __init__(self, folders: AllowedFolders) -> None:
        self._folders = folders
        self._turn = threading.Lock()

    def candidate_write(
        self,
        name: Annotated[str, Field(description="name of the candidate; it becomes the folder candidates/NAME")],
        files: Annotated[
            dict[str, str],
            Field(
                description="all files of the candidate by name: candidate.toml and the sources; "
                f"candidate.toml is such as {EXAMPLE}; language: python, triton, cuda, cpp or cutedsl"
            ),
        ],
        root: Annotated[str | None, Field(description="folder of the server; default: the first one")] = None,
    ) -> CandidateCard:
        """Write a candidate, a kernel that the judge can judge. It replaces an earlier candidate of the same name.

        Nothing is run. If a file is invalid, nothing is changed.
        """
        check_files(name, files)
        parent = self._parent(root)
        with self._turn:
            return self._card(replace_candidate(self._folders, parent, name, files))

    def candidate_show(
        self,
        folder: Annotated[str, Field(description="folder of a candidate below a folder of the server", min_length=1)],
        file: Annotated[str | None, Field(description="name of a file whose content to return")] = None,
    ) -> CandidateCard:
        """Show a candidate: op, language, entry, digest and files, and the content of one file."""
        real = self._folders.folder(folder)
        self._folders.check_entries(real)
        candidate = load_candidate(real)
        text = None
        if file is not None:
            if file not in candidate.sources:
                raise KernwrightError(
                    f"{folder} has no file {file!r}", f"its files are: {', '.join(sorted(candidate.sources))}"
                )
            text = candidate.sources[file].decode(errors="replace")[:MOST_SHOWN]
        return self._card(candidate, text)

    def _parent(self, root: str | None) -> Path:
        """Return the folder that holds the candidates of a root. It must be a real folder below the root."""
        base = self._folders.resolve(root) if root is not None else self._folders.roots[0]
        if base not in self._folders.roots:
            raise NotAllowed(f"{root} is not a folder of this server", f"use one of: {self._folders.roots}")
        parent = base / CANDIDATES
        try:
            parent.mkdir(exist_ok=True)
        except OSError as error:
            raise EnvironmentProblem(f"{parent} cannot be made: {error.strerror}", "make it a folder") from None
        return parent

    def _card(self, candidate: Candidate, text: str | None = None) -> CandidateCard:
        folder = self._folders.shown(candidate.folder)
        sizes = sorted((name, len(data)) for name, data in candidate.sources.items())
        return CandidateCard(
            folder=folder,
            op=candidate.file.op,
            language=candidate.file.language,
            entry=candidate.file.entry,
            style=candidate.style,
            digest=candidate.digest,
            files=[FileEntry(name=name, bytes=size) for name, size in sizes[:MOST_FILES]],
            text=text,
            next=_next_calls(candidate.file.op, folder),
        )


def replace_candidate(folders: AllowedFolders, parent: Path, name: str, files: dict[str, str]) -> Candidate:
    """Write the files of a candidate beside it, check them, and put them in its place.

    Raises:
        KernwrightError: the files are no candidate, or cannot be written; nothing was changed.
    """
    check_files(name, files)
    try:
        with folders.pinned(parent) as pinned:
            _replace(pinned, name, files)
    except OSError as error:
        raise EnvironmentProblem(
            f"{parent / name} cannot be written: {error.strerror}", "check its permissions, and free some space"
        ) from None
    return load_candidate(parent / name)


def _replace(parent: Path, name: str, files: dict[str, str]) -> None:
    folder = parent / name
    if folder.is_symlink() or (folder.exists() and not (folder / CANDIDATE_FILE).is_file()):
        raise NotAllowed(f"{name} exists and is no candidate", "choose another name")
    with tempfile.TemporaryDirectory(prefix=".part-", dir=parent) as part:
        new = Path(part, name)
        for relative, text in files.items():
            path = new / relative
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        try:
            load_candidate(new)
        except KernwrightError as error:
            raise _with_name(error, (new, new.resolve()), name) from None
        if folder.exists():
            os.rename(folder, Path(part, "before"))  # noqa: PTH104 - the name is free: nothing is replaced
        try:
            os.rename(new, folder)  # noqa: PTH104
        except OSError:
            if (before := Path(part, "before")).exists():
                shutil.move(before, folder)
            raise


def _with_name(error: KernwrightError, paths: tuple[Path, ...], name: str) -> KernwrightError:
    """Return an error with the name of a candidate in place of the paths of its draft."""
    cause, remedy = error.cause, error.remedy
    for path in paths:
        cause, remedy = cause.replace(str(path), name), remedy.replace(str(path), name)
    return KernwrightError(cause, remedy)


def _next_calls(op: str, folder: str) -> list[NextCall]:
    """Return calls of judge on the tasks that have rows of the op."""
    tasks = []
    for name, path in list_tasks().items():
        try:
            if op in TaskSummary.read(path).ops:
                tasks.append(name)
        except KernwrightError:
            continue  # its own error is in tasks_list
    why = "check it and measure rough times"
    found = [call("judge", why, task=name, candidate=folder, quick=True) for name in tasks[:MOST_TASKS]]
    return found or [call("tasks_list", f"no task has rows of {op}: look for a misspelt op")]


def check_files(name: str, files: dict[str, str]) -> None:
    """Raise an error for names and sizes that a candidate cannot have."""
    if not _NAME.fullmatch(name):
        raise KernwrightError(f"{name[:100]!r} is no name of a candidate", "use letters, digits, - and _")
    if not files or len(files) > MOST_FILES:
        raise KernwrightError(
            f"a candidate has 1 to {MOST_FILES} files, got {len(files)}", f"give {CANDIDATE_FILE} and the sources"
        )
    total = 0
    for relative, text in files.items():
        parts = relative.split("/")
        if len(parts) > _DEEPEST or not all(map(_NAME.fullmatch, parts)):
            raise KernwrightError(f"{relative[:100]!r} is no file name", "use names such as kernel.cc or lib/math.h")
        if any("/".join(parts[:depth]) in files for depth in range(1, len(parts))):
            raise KernwrightError(f"{relative!r} lies in a folder that is named like a file", "rename one of them")
        if TASK_FILE in parts:  # the judge imports the definitions of a task, but never a candidate
            raise KernwrightError(f"a candidate has no {TASK_FILE}", "rename the file")
        size = len(text.encode(errors="surrogatepass"))
        total += size
        if size > MOST_FILE_BYTES or total > MOST_BYTES:
            raise KernwrightError(
                f"{relative} is too large, or all files together: {total:,} bytes",
                f"a file has at most {MOST_FILE_BYTES:,} bytes, all of them {MOST_BYTES:,}",
            )
