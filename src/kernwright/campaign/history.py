"""History: everything that the ledger says about one campaign."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from pydantic import ValidationError

from kernwright.campaign.record import (
    KINDS,
    BaselineMeasured,
    CampaignBody,
    CampaignEnded,
    CampaignStarted,
    Idea,
    IterationEdited,
    IterationEnded,
    IterationStarted,
    LedgerReread,
    ProfileTaken,
    ReviewGiven,
)
from kernwright.core.errors import LedgerError
from kernwright.ledger.ledger import Ledger

Body = TypeVar("Body", bound=CampaignBody)


@dataclass(frozen=True)
class Iteration:
    """One idea and, as far as they are known, its edit and its outcome."""

    started: IterationStarted
    edited: IterationEdited | None = None
    ended: IterationEnded | None = None

    @property
    def number(self) -> int:
        return self.started.number

    @property
    def idea(self) -> Idea | None:
        return (self.edited and self.edited.idea) or self.started.idea

    @property
    def is_open(self) -> bool:
        return self.ended is None


@dataclass(frozen=True)
class HistoryEntry:
    """One record of a campaign, with its place in the ledger."""

    run: str
    seq: int
    time: str
    hash: str
    body: CampaignBody


@dataclass(frozen=True)
class History:
    """The records of one campaign, oldest first.

    Each process that works on a campaign writes a run of its own, one after the other, so runs are in order of time.
    """

    entries: Sequence[HistoryEntry]

    @classmethod
    def read(cls, ledger: Ledger, campaign: str) -> History:
        return cls([entry for entry in _entries(ledger) if entry.body.campaign == campaign])

    def all(self, kind: type[Body]) -> list[Body]:
        return [entry.body for entry in self.entries if isinstance(entry.body, kind)]

    def latest(self, kind: type[Body]) -> Body | None:
        return next(reversed(self.all(kind)), None)

    @cached_property
    def started(self) -> CampaignStarted | None:
        return self.latest(CampaignStarted)

    @cached_property
    def baseline(self) -> BaselineMeasured | None:
        return self.latest(BaselineMeasured)

    @cached_property
    def end(self) -> CampaignEnded | None:
        return self.latest(CampaignEnded)

    @cached_property
    def iterations(self) -> list[Iteration]:
        """Return the iterations in order. If several records have the same number and kind, the last one counts."""
        edited = {body.number: body for body in self.all(IterationEdited)}
        ended = {body.number: body for body in self.all(IterationEnded)}
        started = {body.number: body for body in self.all(IterationStarted)}
        return [Iteration(started[n], edited.get(n), ended.get(n)) for n in sorted(started)]

    @property
    def open_iteration(self) -> Iteration | None:
        """Return the iteration that was begun and has no end; there is at most one."""
        return next((iteration for iteration in self.iterations if iteration.is_open), None)

    @property
    def best(self) -> Iteration | None:
        """Return the iteration whose version is the best so far; None before the first improvement."""
        return next((each for each in reversed(self.iterations) if each.ended and each.ended.improved), None)

    @property
    def profiles(self) -> list[ProfileTaken]:
        return self.all(ProfileTaken)

    @property
    def rereads(self) -> list[LedgerReread]:
        return self.all(LedgerReread)

    @property
    def reviews(self) -> list[ReviewGiven]:
        return self.all(ReviewGiven)


def _entries(ledger: Ledger) -> Iterator[HistoryEntry]:
    for record in ledger.all_records() if ledger.exists else ():
        if (kind := KINDS.get(record.kind)) is None:
            continue
        try:
            body = kind.model_validate(record.body)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            raise LedgerError(
                f"record {record.seq} of run {record.run} ({record.kind}) cannot be read: "
                f"{'.'.join(map(str, first['loc']))}: {first['msg']}",
                "read it with the version of Kernwright that wrote it",
            ) from error
        yield HistoryEntry(run=record.run, seq=record.seq, time=record.time, hash=record.hash, body=body)


def campaigns_in(ledger: Ledger) -> list[str]:
    """Return the names of the campaigns of a ledger, oldest first."""
    return list(dict.fromkeys(e.body.campaign for e in _entries(ledger) if isinstance(e.body, CampaignStarted)))
