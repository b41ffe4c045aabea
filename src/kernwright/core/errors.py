"""Errors: each names its cause and its remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

MOST_SHOWN = 20  # problems that one message lists


class KernwrightError(Exception):
    """A condition that the user can fix. The command line prints it as one message and exits with status 2."""

    def __init__(self, cause: str, remedy: str = "") -> None:
        self.cause = cause
        self.remedy = remedy
        super().__init__(f"{cause}\n  remedy: {remedy}" if remedy else cause)


class BadFile(KernwrightError):
    """A file that does not follow its schema."""

    def __init__(self, path: object, field: str, problem: str, remedy: str) -> None:
        where = f"{path}: {field}: " if field else f"{path}: "
        super().__init__(f"{where}{problem}", remedy)


class BadFiles(BadFile):
    """The problems of files that belong together, such as the files of a task."""

    def __init__(self, problems: list[BadFile]) -> None:
        self.problems = problems
        shown, hidden = problems[:MOST_SHOWN], len(problems) - MOST_SHOWN
        more = [f"and {hidden} more"] if hidden > 0 else []
        listed = [f"{problem.cause}\n    remedy: {problem.remedy}" for problem in shown]
        text = "\n  ".join([f"{len(problems)} problems:", *listed, *more])
        KernwrightError.__init__(self, text)
        self.remedy = problems[0].remedy


class FileProblems:
    """Collects the problems of files, so that one message reports all of them."""

    def __init__(self) -> None:
        self.found: list[BadFile] = []

    @contextmanager
    def collected(self) -> Iterator[None]:
        """Keep the problem that the block raises."""
        try:
            yield
        except BadFiles as several:
            self.found += several.problems
        except BadFile as problem:
            self.found.append(problem)

    def add(self, problems: Iterable[BadFile]) -> None:
        self.found += problems

    def raise_any(self) -> None:
        """Raise the problems that were found, if any."""
        if len(self.found) == 1:
            raise self.found[0]
        if self.found:
            raise BadFiles(self.found)


class ExistsAlready(KernwrightError):
    """A file or folder that would have to be overwritten."""


class LedgerError(KernwrightError):
    """The ledger cannot be read, written or trusted."""


class EnvironmentProblem(KernwrightError):
    """The machine lacks something that the request needs, such as a device, memory, a compiler or a writable folder."""


def did_you_mean(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return a remedy for a misspelt name: the names close to it, then `otherwise`."""
    by_letters = {name.casefold(): name for name in reversed(list(known))}
    close = [by_letters[name] for name in difflib.get_close_matches(word.casefold(), by_letters, 3, 0.6)]
    asked = f"did you mean {' or '.join(close)}?" if close else ""
    return "; ".join(part for part in (asked, otherwise) if part).replace("?; ", "? ")
