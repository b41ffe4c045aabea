"""Isolation: the report of a worker on the walls that are in force around it."""

from __future__ import annotations

from dataclasses import dataclass, field

SHARED_FILES = "shared with the judge"


@dataclass
class Isolation:
    """The walls in force around a worker, each in words.

    `missing` names the walls that could not be set up, with the cause.
    """

    dies_with_judge: bool = False
    no_new_privileges: bool = False
    capabilities: str = "as the judge's"
    network: str = "shared"
    user: str = "the judge's"
    file_system: str = SHARED_FILES
    system_calls: str = "all"
    signals: str = "to every process of its user"
    limits: str = "none"
    processes: str = "unlimited"
    processors: str = "any"
    missing: list[str] = field(default_factory=list)
