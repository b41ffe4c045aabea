"""Repository: git as campaigns use it, and folders of a commit as plain files, byte by byte.

No hook runs and nothing is signed. Content passes no filter, so that line endings in a commit are those of the files
that were judged. A commit is built with an index of its own: the index of the user's tree is never part of it.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from kernwright.core.errors import EnvironmentProblem, KernwrightError
from kernwright.tasks.candidate import IGNORED

QUIET = (
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "commit.gpgSign=false",
    "-c",
    "gc.auto=0",
    "-c",
    "advice.detachedHead=0",
)
LOCALE = {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"}
# Variables that a hook or an editor sets. They would lead git to another repository.
ELSEWHERE = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR", "GIT_NAMESPACE")
IDENTITY = {"NAME": "Kernwright", "EMAIL": "kernwright@localhost"}  # author of commits, if the user has configured none
MOST_BYTES = 10 * 2**20  # larger files beside the candidate are not committed
MOST_BESIDE, MOST_FILES_BESIDE = 64 * 2**20, 1000  # bytes and number of all files beside the candidate


class GitFailed(KernwrightError):
    """A git command failed. `output` has its messages."""

    def __init__(self, words: Sequence[str], status: int, output: str) -> None:
        self.output = output.strip()
        super().__init__(
            f"`git {' '.join(words)}` ended with status {status}: {self.output or 'no message'}",
            "check the repository with `git status` and `git fsck`",
        )


@dataclass(frozen=True)
class FileVersion:
    """One file of a tree: its mode and the hash of its content."""

    mode: str
    blob: str


Files = Mapping[str, FileVersion]  # by path relative to a folder


@dataclass(frozen=True)
class Repository:
    """A working tree of a git repository.

    Attributes:
        root: the root of the working tree.
        kept_open: descriptors that git processes inherit, such as a lock that must outlive this process with them.
    """

    root: Path
    kept_open: tuple[int, ...] = ()

    @classmethod
    def around(cls, folder: Path) -> Repository:
        """Return the repository whose working tree has this folder.

        Raises:
            KernwrightError: the folder is in no working tree of git.
        """
        try:
            return cls(Path(cls(folder).git("rev-parse", "--show-toplevel").rstrip("\n")))
        except GitFailed as failed:
            raise KernwrightError(
                f"{folder} is in no working tree of git: {failed.output}",
                "run `git init` and commit your files, or run this in a clone",
            ) from None

    @property
    def main(self) -> Repository:
        """Return the repository's main working tree, if this is a worktree of it."""
        common = Path(self.git("rev-parse", "--path-format=absolute", "--git-common-dir").rstrip("\n"))
        return Repository(common.parent, self.kept_open) if common.name == ".git" else self

    def git(self, *words: str, given: bytes | None = None, index: Path | None = None) -> str:
        """Return the output of a git command as text."""
        return self.raw(*words, given=given, index=index).decode(errors="surrogateescape")

    def raw(self, *words: str, given: bytes | None = None, index: Path | None = None) -> bytes:
        """Return the output of a git command.

        Args:
            given: its standard input.
            index: an index file to use in place of the working tree's.
        """
        environment = {name: value for name, value in os.environ.items() if name not in ELSEWHERE} | LOCALE
        if index is not None:
            environment["GIT_INDEX_FILE"] = str(index)
        try:
            ended = subprocess.run(
                ["git", *QUIET, "-C", str(self.root), *words],
                input=given if given is not None else b"",
                capture_output=True,
                env=environment | self._identity(words),
                pass_fds=self.kept_open,
                check=False,
            )
        except FileNotFoundError:
            raise EnvironmentProblem("git is not installed", "install git") from None
        if ended.returncode:
            raise GitFailed(words, ended.returncode, ended.stderr.decode(errors="replace"))
        return ended.stdout

    def _identity(self, words: Sequence[str]) -> dict[str, str]:
        """Return the variables of a commit's author, if git needs them and the user has configured none."""
        if words[0] != "commit-tree" or self.configured("user.email"):
            return {}
        return {f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in IDENTITY.items()}

    def configured(self, key: str) -> str | None:
        try:
            return self.git("config", "--get", key).strip()
        except GitFailed:
            return None

    def commit_of(self, reference: str) -> str | None:
        """Return the hash of a commit; None if there is no such commit."""
        try:
            return self.git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{reference}^{{commit}}").strip()
        except GitFailed:
            return None

    @property
    def head(self) -> str:
        """Return the commit of the working tree."""
        if (commit := self.commit_of("HEAD")) is None:
            raise KernwrightError(f"{self.root} has no commit", "commit your files first")
        return commit

    def message(self, commit: str) -> str:
        return self.git("show", "-s", "--format=%B", commit)

    def trailer(self, commit: str, key: str) -> str | None:
        """Return the value of the last line `key: value` of a commit's message."""
        lines = reversed(self.message(commit).splitlines())
        return next((line.removeprefix(f"{key}: ") for line in lines if line.startswith(f"{key}: ")), None)

    def parent(self, commit: str) -> str | None:
        return self.commit_of(f"{commit}~1")

    # Files

    def files_at(self, commit: str, folder: PurePosixPath) -> dict[str, FileVersion]:
        """Return the files of a folder in a commit; none if it has no such folder."""
        listed = self.git("ls-tree", "-r", "-z", "--full-tree", commit, "--", f"{folder}/")
        found = {}
        for line in filter(None, listed.split("\0")):
            about, _, path = line.partition("\t")
            mode, kind, blob = about.split()
            if kind == "blob":
                found[PurePosixPath(path).relative_to(folder).as_posix()] = FileVersion(mode, blob)
        return found

    def files_in(self, folder: Path, whole: PurePosixPath | None = None) -> dict[str, FileVersion]:
        """Store the plain files below a folder in the repository and return them.

        Links, special files, caches and nested repositories are left out. Outside the subfolder `whole`, so are files
        of more than 10 MiB, and those after the first 64 MiB or 1000 files.
        """
        paths = _kept_files(folder, whole)
        given = b"".join(os.fsencode(path) + b"\n" for path in paths)
        blobs = self.git("hash-object", "-w", "--no-filters", "--stdin-paths", given=given).split() if paths else []
        return {
            path.relative_to(folder).as_posix(): FileVersion("100755" if os.access(path, os.X_OK) else "100644", blob)
            for path, blob in zip(paths, blobs, strict=True)
        }

    def contents(self, files: Files) -> dict[str, bytes]:
        """Return the content of files."""
        given = "".join(f"{file.blob}\n" for file in files.values()).encode()
        output = self.raw("cat-file", "--batch", given=given) if files else b""
        found, start = {}, 0
        for name in files:
            end = output.index(b"\n", start)
            size = int(output[start:end].split()[2])
            found[name] = output[end + 1 : end + 1 + size]
            start = end + 2 + size
        return found

    def write(self, files: Files, folder: Path) -> None:
        """Make the plain files below a folder equal to the given ones. Links and caches in it are removed, too."""
        contents = self.contents(files)
        if folder.is_symlink() or folder.is_file():  # the files behind a link belong to others
            folder.unlink()
        folder.mkdir(parents=True, exist_ok=True)
        for path in sorted(folder.rglob("*"), reverse=True):
            if path.is_dir() and not path.is_symlink():
                if not any(path.iterdir()):
                    path.rmdir()
            elif path.is_symlink() or path.relative_to(folder).as_posix() not in files:
                path.unlink()
        for name, data in contents.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.is_file() or path.read_bytes() != data:
                path.unlink(missing_ok=True)  # another file may be the same one under another name
                path.write_bytes(data)
            path.chmod(0o755 if files[name].mode == "100755" else 0o644)

    # Commits

    def commit(self, folder: PurePosixPath, files: Files, message: str, branch: str, index: Path) -> str:
        """Add a commit to a branch in which a folder has exactly these files. Return the commit.

        Args:
            branch: the branch; the commit that it names becomes the parent, and must still be named at the end.
            index: path of a temporary index.
        """
        reference = f"refs/heads/{branch}"
        parent = self.git("rev-parse", "--verify", reference).strip()
        with _temporary(index):
            self.git("read-tree", parent, index=index)
            before = self.files_at(parent, folder)
            removed = {name: FileVersion("0", file.blob) for name, file in before.items() if name not in files}
            changed = {name: file for name, file in files.items() if before.get(name) != file}
            self._stage({str(folder / name): file for name, file in (removed | changed).items()}, index)
            tree = self.git("write-tree", index=index).strip()
        made = self.git("commit-tree", tree, "-p", parent, "-F", "-", given=message.encode()).strip()
        subject = message.partition("\n")[0]
        self._unlocked((f"{reference}.lock", "HEAD.lock"), "update-ref", "-m", subject, reference, made, parent)
        return made

    def names_left_out(self, files: Files, index: Path) -> list[str]:
        """Return the names that git refuses to commit, such as `git~1`, which some file systems take for `.git`.

        Args:
            index: path of a temporary index.
        """
        with _temporary(index):
            self._stage(files, index)
            staged = self.git("ls-files", "-z", "--full-name", ":/", index=index).split("\0")
        return sorted(files.keys() - set(staged))

    def _stage(self, files: Files, index: Path) -> None:
        given = "".join(f"{file.mode} {file.blob}\t{name}\0" for name, file in files.items())
        self.git("update-index", "-z", "--index-info", given=given.encode(errors="surrogateescape"), index=index)

    def refresh_index(self) -> None:
        """Make the working tree's index that of its commit, so that `git status` shows what differs from it."""
        self._unlocked(("index.lock",), "read-tree", "HEAD")

    def _unlocked(self, locks: Sequence[str], *words: str) -> None:
        """Run a git command, if it fails again without the locks of a killed process.

        The caller holds the campaign's lock, which every git process of a campaign inherits: none of them runs.
        """
        try:
            self.git(*words)
        except GitFailed:
            paths = [self.git("rev-parse", "--path-format=absolute", "--git-path", name).strip() for name in locks]
            if not any(Path(path).exists() for path in paths):
                raise
            for path in paths:
                Path(path).unlink(missing_ok=True)
            self.git(*words)


@contextmanager
def _temporary(index: Path) -> Iterator[None]:
    """Remove an index and its lock, which a killed process may have left, before and after its use."""
    paths = (index, index.with_name(f"{index.name}.lock"))
    try:
        for path in paths:
            path.unlink(missing_ok=True)
        yield
    finally:
        for path in paths:
            path.unlink(missing_ok=True)


def _kept_files(folder: Path, whole: PurePosixPath | None) -> list[Path]:
    found, beside, count = [], 0, 0
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()):
        relative = PurePosixPath(path.relative_to(folder).as_posix())
        if IGNORED & set(relative.parts) or "\n" in str(path):
            continue
        if whole is None or not relative.is_relative_to(whole):
            size = path.stat().st_size
            if size > MOST_BYTES or beside + size > MOST_BESIDE or count == MOST_FILES_BESIDE:
                continue
            beside, count = beside + size, count + 1
        found.append(path)
    return found
