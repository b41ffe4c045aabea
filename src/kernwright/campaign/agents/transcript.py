"""Transcript: the output of an agent. Of a long one, the head and the tail are kept."""

from __future__ import annotations

MOST_HEAD, MOST_TAIL = 1 << 18, 3 << 18  # bytes


class Transcript:
    """Collects output in pieces, within a bounded amount of memory."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._tail = bytearray()
        self._left_out = 0

    def add(self, piece: bytes) -> None:
        room = max(0, MOST_HEAD - len(self._head))
        self._head += piece[:room]
        self._tail += piece[room:]
        if len(self._tail) > 2 * MOST_TAIL:
            self._cut()

    def _cut(self) -> None:
        surplus = len(self._tail) - MOST_TAIL
        if surplus > 0:
            self._left_out += surplus
            del self._tail[:surplus]

    def content(self) -> bytes:
        self._cut()
        gap = f"\n[... {self._left_out} bytes left out ...]\n".encode() if self._left_out else b""
        return bytes(self._head) + gap + bytes(self._tail)
