"""CampaignBook: the records of a campaign, as the process that works on it reads and writes them."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from kernwright.campaign.campaign import Campaign
from kernwright.campaign.history import History, HistoryEntry
from kernwright.campaign.record import CampaignBody, CampaignStarted
from kernwright.campaign.repository import Repository
from kernwright.core.errors import KernwrightError
from kernwright.core.version import __version__
from kernwright.ledger.ledger import RunWriter

WAIT_S = 10.0  # git processes of a killed predecessor hold the lock until they end

Listener = Callable[[Campaign, History], None]


class CampaignBook:
    """The history of a campaign and the writer of its records.

    The history is read once. Later records are appended to it when they are on the disk.
    """

    def __init__(self, campaign: Campaign, repository: Repository, listener: Listener | None = None) -> None:
        self.campaign = campaign
        self.repository = repository
        self.history = campaign.history()
        self._listener = listener
        self._writer: RunWriter | None = None

    def append(self, body: CampaignBody) -> HistoryEntry:
        """Write a record, and tell the listener about it. When this returns, the record is on the disk."""
        if self._writer is None:
            self._writer = self.campaign.ledger.open_run({"campaign": self.campaign.name, "kernwright": __version__})
        record = self._writer.append(body.kind, body.model_dump(mode="json"))
        entry = HistoryEntry(run=record.run, seq=record.seq, time=record.time, hash=record.hash, body=body)
        self.history = History([*self.history.entries, entry])
        if self._listener is not None:
            self._listener(self.campaign, self.history)
        return entry

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


@contextmanager
def working_on(campaign: Campaign, listener: Listener | None = None) -> Iterator[CampaignBook]:
    """Work on a campaign, while no other process does.

    Args:
        listener: is called after each record.

    Raises:
        KernwrightError: another process works on it.
    """
    with ExitStack() as stack:
        lock = stack.enter_context(campaign_lock(campaign.folder))
        book = CampaignBook(campaign, campaign.git(kept_open=(lock,)), listener)
        stack.callback(book.close)
        if book.history.started is None:
            book.append(CampaignStarted(campaign=campaign.name, settings=campaign.settings))
        yield book


@contextmanager
def campaign_lock(folder: Path) -> Iterator[int]:
    """Hold the lock of a campaign's folder and yield its descriptor. The kernel releases it if the process dies.

    Git processes inherit it, so that none of a killed process still runs when the next process begins.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise KernwrightError(
                        f"another process works on campaign {folder.name}",
                        "wait until it has ended; `kernwright campaign status` shows its progress",
                    ) from None
                time.sleep(0.05)
        yield lock
    finally:
        os.close(lock)


def is_worked_on(folder: Path) -> bool:
    """Return whether a process holds the lock of a campaign's folder."""
    try:
        lock = os.open(folder / ".lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
