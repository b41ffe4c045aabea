"""ProtectedPlace: one place that an agent must not change, with the name that a refusal gives it."""

from __future__ import annotations

import stat
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernwright.campaign.agents.guard.file_states import FileChange, Skip, States, changes_between, read_states

MOST_NAMED = 5  # changes that a refusal names for one place


@dataclass(frozen=True)
class ProtectedPlace:
    """A tree of files.

    Attributes:
        name: as in "the agent changed the task: ...".
        keep: keep contents, so that a change of content can be told from a touched file, and undone.
        fetch: returns content that was not kept, such as from the repository.
    """

    name: str
    root: Path
    keep: bool = True
    skip: Skip = lambda path: False
    fetch: Callable[[Path], bytes | None] = lambda path: None

    def states(self) -> States:
        return read_states(self.root, self.keep, self.skip)


@dataclass
class ProtectedState:
    """The state of a place at one time."""

    place: ProtectedPlace
    before: States = field(init=False)

    def __post_init__(self) -> None:
        self.before = self.place.states()

    def undo(self) -> list[str]:
        """Put back what changed. Return a sentence for each change."""
        changes = changes_between(self.before, self.place.states())
        found = []
        for change in changes:
            restored = change.restore(self.place.fetch)
            found.append(f"{self._described(change)}{'' if restored else ', which could not be restored'}")
        # A touched file has another stamp now. Folders were restored before the files in them.
        more = f"{self.place.name}: {len(found) - MOST_NAMED} more changes"
        return found if len(found) <= MOST_NAMED else [*found[:MOST_NAMED], more]

    def _described(self, change: FileChange) -> str:
        root = self.place.root
        name = str(change.path.relative_to(root.parent if change.path != root else root.parents[1]))
        if change.before is None:
            return f"{self.place.name}: {name} was added"
        if change.after is None:
            return f"{self.place.name}: {name} was removed"
        if change.after.kind == stat.S_IFLNK != change.before.kind:
            return f"{self.place.name}: {name} became a link"
        return f"{self.place.name}: {name}{_changed_keys(change)}"


def _changed_keys(change: FileChange) -> str:
    """Return the tables of a TOML file that changed, such as " (tolerance)"."""
    if change.path.suffix != ".toml" or change.before is None or change.after is None:
        return ""
    old, new = _toml(change.before.data), _toml(change.after.data)
    keys = sorted(key for key in {*old, *new} if old.get(key) != new.get(key))
    return f" ({', '.join(keys)})" if keys else ""


def _toml(data: bytes | None) -> dict[str, Any]:
    try:
        return tomllib.loads((data or b"").decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError):
        return {}
