"""Recorder: the signatures that a process has seen, stored on disk as they come.

Each process has two files: one line per signature, and a memory-mapped file of counters. Both are up to date after
every call, so that a process that is killed leaves everything it had recorded. The file of lines is opened for each
line, because a program may close all file descriptors, as daemons do, and reuse their numbers.
"""

from __future__ import annotations

import json
import mmap
import os
import platform
import struct
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from .describe import Described, Traced, as_json, describe
from .target import CaptureTarget

MOST_SIGNATURES = 4096  # per process; calls of further signatures are only counted
MOST_OF_ONE = 1024  # per target, so that a target whose scalars always change leaves room for the others
MOST_NOTES = 1000
_COUNTER = struct.Struct("<Q")
LINES = ".lines"
COUNTERS = ".counters"


class Parameters:
    """The names of a callable's parameters, and the defaults of its scalars."""

    def __init__(
        self,
        positional: Sequence[str] = (),
        rest: str = "",
        by_name: Sequence[str] = (),
        defaults: Mapping[str, Any] | None = None,
    ) -> None:
        self.positional = tuple(positional)
        self.rest = rest
        plain = _plain(defaults or {})
        self.defaults = {name: described for name, described in plain.items() if described[0] != "other"}
        self._order = {name: place for place, name in enumerate([*positional, *by_name])}

    def named(self, args: Sequence[Described], kwargs: Mapping[str, Described]) -> list[tuple[str, Described]]:
        """Return every argument by name in the order of the signature.

        Arguments that the signature does not name follow: positional ones by number, keywords by name.
        """
        found: dict[str, Described] = dict(self.defaults)
        for place, value in enumerate(args):
            extra = place - len(self.positional)
            found[self.positional[place] if extra < 0 else f"{self.rest}[{extra}]" if self.rest else str(place)] = value
        found.update((name, kwargs[name]) for name in sorted(kwargs))
        return sorted(found.items(), key=lambda item: self._order.get(item[0], len(self._order)))


def _plain(values: Mapping[str, Any]) -> dict[str, Described]:
    described = {}
    for name, value in values.items():
        try:
            described[name] = describe(value)
        except Exception:  # Traced, or any error of a class: the default is left out, since the import must go on
            continue
    return described


class Recorder:
    """Counts calls by signature. Never raises, because recording must not make a program fail."""

    def __init__(self, folder: str, targets: Sequence[str]) -> None:
        self.folder = folder
        self.targets = targets
        self._busy = threading.local()
        self._left_open: list[Any] = []
        self._notes: list[dict[str, str]] = []
        self._begin()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._after_fork)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._slots: dict[Any, int] = {}
        self._canonical: dict[str, int] = {}
        self._kept = [0] * len(self.targets)
        self._counters: mmap.mmap | None = None
        self._path = ""
        self._broken = False
        self._knows_torch = False

    def _after_fork(self) -> None:
        """Give a forked child its own files. The mapping of the parent stays open: its descriptor may be reused."""
        self._left_open.append(self._counters)
        self._begin()

    def wrapped(self, target: CaptureTarget) -> None:
        if (note := {"wrapped": target.name}) not in self._notes:
            self._note(note)

    def problem(self, target: CaptureTarget, said: str) -> None:
        note = {"problem": f"{target.name}: {said}"}
        if note not in self._notes and len(self._notes) < MOST_NOTES:
            self._note(note)

    def _note(self, note: dict[str, str]) -> None:
        before, self._busy.now = getattr(self._busy, "now", False), True
        try:
            with self._lock:
                self._notes.append(note)
                if self._path:
                    self._write(note)
                else:
                    self._ready()
        finally:
            self._busy.now = before

    def describe(self, target: CaptureTarget, values: Sequence[Any]) -> tuple[Described, ...] | None:
        """Return the description of a value, or None if it cannot be read: then the call is not recorded."""
        if getattr(self._busy, "now", False):
            return None  # describing a value called a recorded function
        self._busy.now = True
        try:
            return tuple([describe(value) for value in values])
        except Traced:
            return None
        except Exception as error:  # any error of an unusual tensor: the program must go on
            self.problem(target, f"a call could not be described: {type(error).__name__}: {error}"[:300])
            return None
        finally:
            self._busy.now = False

    def record(
        self,
        target: CaptureTarget,
        parameters: Parameters,
        args: Sequence[Described],
        kwargs: Mapping[str, Described],
        returns: Described | None,
        raised: str | None,
    ) -> None:
        if getattr(self._busy, "now", False):
            return  # a signal handler interrupted the lines below
        self._busy.now = True
        try:
            # A target may name its parameters differently in another place.
            key = (target.index, parameters, tuple(args), tuple(kwargs.items()), returns, raised)
            with self._lock:
                if not self._ready():
                    return
                slot = self._slots.get(key)
                if slot is None:
                    slot = self._slot_of(target, parameters.named(args, kwargs), returns, raised)
                    if len(self._slots) < MOST_SIGNATURES:
                        self._slots[key] = slot
                self._count(slot)
        except Exception as error:  # any error: the program must go on
            self.problem(target, f"a call could not be recorded: {type(error).__name__}: {error}"[:300])
        finally:
            self._busy.now = False

    def _slot_of(
        self,
        target: CaptureTarget,
        arguments: list[tuple[str, Described]],
        returns: Described | None,
        raised: str | None,
    ) -> int:
        """Return the counter of a signature, or the overflow counter of its target if there are too many."""
        call = {
            "call": target.name,
            "arguments": [{"name": name, "value": as_json(value)} for name, value in arguments],
            "returns": None if returns is None else as_json(returns),
            "raised": raised,
        }
        text = json.dumps(call)
        slot = self._canonical.get(text)
        if slot is not None:
            return slot
        if len(self._canonical) >= MOST_SIGNATURES or self._kept[target.index] >= MOST_OF_ONE:
            return target.index
        slot = len(self.targets) + len(self._canonical)
        self._canonical[text] = slot
        self._kept[target.index] += 1
        self._write({"slot": slot, **call})
        return slot

    def _ready(self) -> bool:
        """Create the files of this process on first use. A process that records nothing leaves no files."""
        if self._counters is None and not self._broken:
            base = f"{self.folder}/{os.getpid()}-{os.urandom(6).hex()}"
            size = _COUNTER.size * (len(self.targets) + MOST_SIGNATURES)
            try:
                with open(base + COUNTERS, "x+b") as file:  # noqa: PTH123
                    file.write(bytes(size))  # a sparse file would raise SIGBUS on a full disk
                    file.flush()
                    self._counters = mmap.mmap(file.fileno(), size)
                self._path = base + LINES
            except (OSError, ValueError):
                self._broken = True
                return False
            self._write({"python": platform.python_version()})
            for note in self._notes:
                self._write(note)
        torch = sys.modules.get("torch")
        if not self._knows_torch and hasattr(torch, "__version__"):
            self._knows_torch = True
            self._write({"torch": str(getattr(torch, "__version__", ""))})
        return not self._broken

    def _write(self, line: Mapping[str, Any]) -> None:
        if self._broken or not self._path:
            return
        try:
            file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(file, (json.dumps(line) + "\n").encode())
            finally:
                os.close(file)
        except OSError:
            self._broken = True  # the disk is full or the folder was removed: the program goes on without records

    def _count(self, slot: int) -> None:
        if self._counters is None or self._broken:
            return
        place = slot * _COUNTER.size
        (before,) = _COUNTER.unpack_from(self._counters, place)
        _COUNTER.pack_into(self._counters, place, before + 1)
