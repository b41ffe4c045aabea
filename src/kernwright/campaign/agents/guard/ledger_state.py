"""LedgerState: the ledger before an agent ran. Afterwards its records must be there, and none may be forged.

Other processes may add records of other work meanwhile. A record with the campaign's name, and a verdict on its
candidate, can only come from the process that works on the campaign; it waits while the agent runs.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from kernwright.campaign.agents.guard.file_states import FileChange, FileState, States, read_states
from kernwright.campaign.record import KINDS
from kernwright.core.errors import LedgerError
from kernwright.ledger.ledger import Ledger
from kernwright.ledger.record import HEADS, Record, read_chain

NAME = "the ledger"


@dataclass
class LedgerState:
    ledger: Ledger
    campaign: str
    before: States = field(init=False)

    def __post_init__(self) -> None:
        self.before = self._now()

    def _now(self) -> States:
        blobs = self.ledger.root / "blobs"
        own = read_states(self.ledger.root, keep=True, skip=lambda path: path == blobs or path.name == ".lock")
        return own | read_states(blobs, keep=False)  # their names are the digests of their contents

    def undo(self) -> list[str]:
        """Put back what changed or was forged. Return a sentence for each."""
        after = self._now()
        found: list[str] = []
        suspect: list[FileChange] = []
        honest_growth = False
        for path in sorted({*self.before, *after}):
            change = FileChange(path, self.before.get(path), after.get(path))
            if change.after is not None and change.before is not None and change.before.is_same(change.after):
                continue
            if problem := self._problem(change):
                found.append(f"{NAME}: {problem}")
                suspect.append(change)
            elif path.parent.name == "runs":
                honest_growth = True
        if not found:
            return []
        return found + self._put_back(suspect, after, honest_growth)

    def _refuse_replaced(self, suspect: list[FileChange]) -> None:
        """Raise LedgerError if a file that this process writes to was replaced: its next records would be lost."""
        for change in suspect:
            if change.before is not None and change.before.stamp[0] in _open_inodes():
                now = FileState.of(change.path, keep=False)
                if now is not None and now.stamp[0] != change.before.stamp[0]:
                    raise LedgerError(
                        f"the agent replaced {change.path}, which this process writes to; it was restored",
                        "run the command again: it continues from the records",
                    )

    def _put_back(self, suspect: list[FileChange], after: States, honest_growth: bool) -> list[str]:
        heads = self.ledger.heads_path
        if honest_growth:  # heads of other runs follow those of the forged ones: what was there before is restored only
            suspect = [change for change in suspect if change.before is not None and change.path != heads]
        elif heads in self.before or heads in after:
            suspect = [*suspect, FileChange(heads, self.before.get(heads), after.get(heads))]
        with self.ledger.locked():
            failed = [change.path.name for change in suspect if not change.restore()]
        self._refuse_replaced(suspect)
        if honest_growth:
            failed.append("the heads, because another process wrote to the ledger meanwhile")
        return [f"{NAME}: could not be restored: {', '.join(failed)}"] if failed else []

    def _problem(self, change: FileChange) -> str | None:
        """Return what is wrong with a changed file, or None for growth that other processes may cause."""
        name = change.path.relative_to(self.ledger.root).as_posix() if change.path != self.ledger.root else "its folder"
        old, new = change.before, change.after
        if new is None:
            return f"{name} was removed"
        if old is not None and old.kind != new.kind:
            return f"{name} became something else"
        if old is not None and old.mode != new.mode:
            return f"the permissions of {name} were changed"
        if name.startswith("blobs/"):
            return None if old is None else f"{name} was changed"
        is_chain = name == "heads.jsonl" or name.startswith("runs/")
        if not is_chain or not name.endswith(".jsonl"):
            return None if old is None else f"{name} was changed"
        if old is not None and not _is_prefix(old, new):
            return f"records of {name} were changed"
        return self._forged(change.path, new, len((old and old.data) or b""))

    def _forged(self, path: Path, state: FileState, known: int) -> str | None:
        """Return what is forged in the records behind the first `known` bytes."""
        is_heads = path == self.ledger.heads_path
        run = HEADS if is_heads else path.stem
        lines = [line for line in (state.data or b"").split(b"\n")[:-1] if line]
        try:
            records = read_chain(iter(lines), run, str(path))
        except LedgerError as error:
            return f"{path.name} has a record that does not belong to its chain: {error.cause}"
        seen = (state.data or b"")[:known].count(b"\n")
        check = self._forged_head if is_heads else self._forged_record
        return next(filter(None, map(check, records[seen:])), None)

    def _forged_head(self, head: Record) -> str | None:
        """Return what is wrong with a head that names no record of its run."""
        run, seq = str(head.body.get("run")), head.body.get("seq")
        try:
            records = self.ledger.records(run)
        except LedgerError as error:
            return f"a head names {run!r}: {error.cause}"
        if isinstance(seq, int) and seq < len(records) and records[seq].hash == head.body.get("record"):
            return None
        return f"a head names a record that run {run} does not have"

    def _forged_record(self, record: Record) -> str | None:
        if record.kind in KINDS and record.body.get("campaign") == self.campaign:
            return f"a record {record.kind} of this campaign was forged in run {record.run}"
        if record.kind == "verdict" and record.body.get("candidate") == self.campaign:
            return f"a verdict of this campaign's candidate was forged in run {record.run}"
        return None


def _open_inodes() -> set[int]:
    found = set()
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found.add(link.stat().st_ino)
    return found


def _is_prefix(old: FileState, new: FileState) -> bool:
    if old.data is None or new.data is None:  # too large to keep: it may only grow
        return new.stamp[1] >= old.stamp[1]
    return new.data.startswith(old.data)
