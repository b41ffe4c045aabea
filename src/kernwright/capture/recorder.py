"""Recorder: a process's table of the signatures it has seen, kept on disk as it grows.

Each process has files of its own: lines for what it has seen (one a signature), and a mapped file of counters. Both are
in the kernel's hands after every call, so that a process that is killed leaves all it had recorded. The lines' file is
opened for each line: a program that closes all its descriptors, as daemons do, must not find ours closed, reused, and
written to.
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

MOST_SIGNATURES = 4096  # of a process; further ones are counted, not kept
MOST_OF_ONE = 1024  # of a target, so that one with an ever new scalar leaves room for the others
MOST_NOTES = 1000
_COUNTER = struct.Struct("<Q")
LINES = ".lines"
COUNTERS = ".counters"


class Parameters:
    """The names of a callable's parameters, and the scalars that it takes where none is given."""

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
        """Every argument by name and in the signature's order, however the call wrote them; what the signature does not
        name comes behind, items of the rest by their places and further keywords by their names."""
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
        except Exception:  # Traced, or a class's own: left out, as what is no setting is; the import must go on
            continue
    return described


class Recorder:
    """Counts calls by signature. Never raises: a program must not fail because it is watched."""

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
        """A child has files of its own. The parent's mapping stays: to close it might close a stranger's file."""
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
        """None where a value cannot or must not be looked at: then the call is not recorded."""
        if getattr(self._busy, "now", False):
            return None  # looking at a value called a recorded function itself
        self._busy.now = True
        try:
            return tuple([describe(value) for value in values])
        except Traced:
            return None
        except Exception as error:  # of whatever kind of tensor: the program must go on
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
            return  # a signal's handler, in the middle of the lines below
        self._busy.now = True
        try:
            # The same values have other names where the target is met in another place.
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
        except Exception as error:  # whatever it is, the program must go on
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
        """The counter of a signature: its own; when there are too many, its target's for calls not kept."""
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
        """Makes this process's files when there is first something to say. Processes without one leave nothing."""
        if self._counters is None and not self._broken:
            base = f"{self.folder}/{os.getpid()}-{os.urandom(6).hex()}"
            size = _COUNTER.size * (len(self.targets) + MOST_SIGNATURES)
            try:
                with open(base + COUNTERS, "x+b") as file:  # noqa: PTH123
                    file.write(bytes(size))  # written out: a hole in the file would be a SIGBUS on a full disk
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
            self._broken = True  # the disk is full, or the folder gone: the program goes on unrecorded

    def _count(self, slot: int) -> None:
        if self._counters is None or self._broken:
            return
        place = slot * _COUNTER.size
        (before,) = _COUNTER.unpack_from(self._counters, place)
        _COUNTER.pack_into(self._counters, place, before + 1)
