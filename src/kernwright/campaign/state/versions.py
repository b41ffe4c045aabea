"""Versions: the candidate of a campaign in its worktree and in the commits of its branch.

A commit's message ends with a line that says what the commit is for:

    Kernwright-Campaign: <name>       the files that the campaign starts with
    Kernwright-Iteration: <number>    the edit of an iteration; the line before it has the record of the edit, as JSON
    Kernwright-Settled: <number>      the state after an iteration: the best version, and ITERATIONS.md

From these lines, a process that resumes a killed one knows which steps were done.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from kernwright.campaign.campaign import Campaign
from kernwright.campaign.record import IterationEdited
from kernwright.campaign.repository import FileVersion, Repository
from kernwright.campaign.state.book import CampaignBook
from kernwright.core.errors import BadFile, KernwrightError
from kernwright.tasks.candidate import read_sources

STARTED = "Kernwright-Campaign"
EDITED = "Kernwright-Iteration"
RECORD = "Kernwright-Record"
SETTLED = "Kernwright-Settled"
SOLUTION = "solution"
SUBJECT = 72  # characters of a commit's first line


@dataclass(frozen=True)
class Versions:
    """The versions of one campaign's candidate."""

    campaign: Campaign
    repository: Repository

    @classmethod
    def of(cls, book: CampaignBook) -> Versions:
        return cls(book.campaign, book.repository)

    @property
    def folder(self) -> PurePosixPath:
        """Return the agent's folder, relative to the root of the worktree."""
        return PurePosixPath(self.campaign.agent_folder.relative_to(self.campaign.worktree).as_posix())

    # Reading

    def edit(self) -> dict[str, FileVersion]:
        """Return the candidate's files as they are in the worktree."""
        return self.repository.files_in(self.campaign.solution, PurePosixPath("."))

    def problem(self) -> BadFile | None:
        """Return why the candidate in the worktree cannot be committed as it is; None if it can."""
        solution = self.campaign.solution
        try:
            read_sources(solution)
        except BadFile as error:
            return error
        except OSError as error:
            return BadFile(solution, "", f"cannot be read: {error}", "correct its permissions")
        if left_out := self.repository.names_left_out(self.edit(), self._index):
            return BadFile(solution, "", f"holds {left_out[0]!r}, which git does not commit", "rename it")
        return None

    def at(self, commit: str) -> dict[str, FileVersion]:
        """Return the candidate's files in a commit."""
        return self.repository.files_at(commit, self.folder / SOLUTION)

    @property
    def start(self) -> str | None:
        """Return the commit with the files that the campaign started with; None if the start was interrupted."""
        base = self.campaign.settings.base_commit
        commits = self.repository.git("rev-list", "--reverse", f"{base}..{self.campaign.branch}").split()
        named = self.campaign.name
        return next((each for each in commits if self.repository.trailer(each, STARTED) == named), None)

    def recorded_edit(self, number: int, parent: str) -> IterationEdited | None:
        """Return the record of an edit from the branch's last commit, if that is the commit of this iteration."""
        head = self.repository.head
        if self.repository.trailer(head, EDITED) != str(number) or self.repository.parent(head) != parent:
            return None
        text = self.repository.trailer(head, RECORD)
        return IterationEdited.model_validate_json(text).model_copy(update={"commit": head}) if text else None

    def is_settled(self, number: int) -> bool:
        return self.repository.trailer(self.repository.head, SETTLED) == str(number)

    def export(self, commit: str, folder: Path) -> Path:
        """Write the candidate of a commit to a folder outside the worktree, which no agent can change. Return it."""
        if folder.is_symlink() or folder.is_file():
            folder.unlink()
        elif folder.exists():
            shutil.rmtree(folder)
        self.repository.write(self.at(commit), folder)
        return folder

    def diff(self, before: str, after: str) -> str:
        """Return the difference between two versions of the candidate as git shows it, with relative paths."""
        place = (self.folder / SOLUTION).as_posix()
        return self.repository.git(
            "diff", "--no-color", "--no-ext-diff", f"--relative={place}", before, after, "--", f":/{place}"
        )

    # Writing

    def restore(self, commit: str) -> None:
        """Set the candidate in the worktree to that of a commit."""
        self.repository.write(self.at(commit), self.campaign.solution)

    def commit_edit(self, edited: IterationEdited) -> IterationEdited:
        """Commit the worktree's candidate as the edit of an iteration. Return the record with the commit."""
        idea = edited.idea
        subject = f"Iteration {edited.number}: {idea.hypothesis if idea else '(none given)'}"
        lines = [_short(subject), "", f"Direction: {idea.direction if idea else 'unknown'}"]
        if idea and idea.predicted_ratio is not None:
            lines.append(f"Predicted: {idea.predicted_ratio:g}x over the best version")
        lines += [f"{RECORD}: {edited.model_dump_json()}", f"{EDITED}: {edited.number}", ""]
        commit = self._commit(self._all_files(), "\n".join(lines))
        return edited.model_copy(update={"commit": commit})

    def commit_settled(self, number: int, standing: str, reason: str) -> None:
        """Commit the generated files, with the candidate of the standing version."""
        files = {name: file for name, file in self._all_files().items() if not name.startswith(f"{SOLUTION}/")}
        files |= {f"{SOLUTION}/{name}": file for name, file in self.at(standing).items()}
        self._commit(files, "\n".join([_short(f"Record iteration {number}: {reason}"), "", f"{SETTLED}: {number}", ""]))

    def commit_start(self) -> str:
        """Commit the files that the campaign starts with."""
        name = self.campaign.name
        return self._commit(self._all_files(), f"Start campaign {name}\n\n{STARTED}: {name}\n")

    def commit_notes(self, subject: str) -> None:
        """Commit generated files that changed. The candidate of the last commit stays."""
        head = self.repository.head
        files = {name: file for name, file in self._all_files().items() if not name.startswith(f"{SOLUTION}/")}
        files |= {f"{SOLUTION}/{name}": file for name, file in self.at(head).items()}
        if files != self.repository.files_at(head, self.folder):
            self._commit(files, f"{_short(subject)}\n{_kept_trailer(self.repository, head)}")

    @property
    def _index(self) -> Path:
        return self.campaign.folder / "commit.index"

    def _all_files(self) -> dict[str, FileVersion]:
        return self.repository.files_in(self.campaign.agent_folder, PurePosixPath(SOLUTION))

    def _commit(self, files: Mapping[str, FileVersion], message: str) -> str:
        attached = self.repository.git("symbolic-ref", "--short", "HEAD").strip()
        if attached != self.campaign.branch:
            raise KernwrightError(
                f"the worktree {self.campaign.worktree} is on branch {attached}, not on {self.campaign.branch}",
                f"`git -C {self.campaign.worktree} switch {self.campaign.branch}`",
            )
        commit = self.repository.commit(self.folder, files, message, self.campaign.branch, self._index)
        self.repository.refresh_index()
        return commit


def _kept_trailer(repository: Repository, head: str) -> str:
    """Return the line that says which iteration the branch has settled, so that the next commit says it, too."""
    settled = repository.trailer(head, SETTLED)
    return f"\n{SETTLED}: {settled}\n" if settled else ""


def _short(subject: str) -> str:
    line = " ".join(subject.split())
    return line if len(line) <= SUBJECT else f"{line[: SUBJECT - 3].rstrip()}..."
