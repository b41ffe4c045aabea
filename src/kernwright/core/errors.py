"""Errors: each names its cause and its remedy."""

from __future__ import annotations


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


class LedgerError(KernwrightError):
    """The ledger cannot be read, written or trusted."""


class EnvironmentProblem(KernwrightError):
    """The machine lacks something that the request needs, such as a device, memory, a compiler or a writable folder."""
