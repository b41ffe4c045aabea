"""Channel: the message pipe between judge and worker. It carries plain data in frames and never unpickles anything.

Buffers travel as file descriptors beside a JSON frame.
"""

from __future__ import annotations

import json
import socket
import time
from array import array
from typing import Any

from kernwright.judge.protocol.frames import HEADER, JSON, MOST_BYTES

DESCRIPTOR = array("i")


class ChannelClosed(Exception):
    """The other side is gone."""


class ChannelGarbled(Exception):
    """The other side sent bytes that no honest side sends."""


class Channel:
    """One end of the pipe."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection

    def send(self, tag: int, payload: bytes) -> None:
        try:
            self.connection.sendall(HEADER.pack(len(payload), tag) + payload)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise ChannelClosed from error

    def send_json(self, message: dict[str, Any], descriptors: tuple[int, ...] = ()) -> None:
        payload = json.dumps(message).encode()
        frame = HEADER.pack(len(payload), JSON) + payload
        try:
            if descriptors:
                sent = socket.send_fds(self.connection, [frame], list(descriptors))
                self.connection.sendall(frame[sent:])
            else:
                self.connection.sendall(frame)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise ChannelClosed from error

    def await_frame(self, deadline_s: float, most: int = 0) -> tuple[int, bytes, list[int]]:
        """Return the next frame and up to `most` descriptors that came with it.

        Wait without sleeping. To wake a sleeping process takes longer than the timed calls, and the time varies more.
        For the same reason this makes as few system calls as possible.
        """
        end = time.monotonic() + deadline_s
        self.connection.settimeout(None)  # with a timeout, Python itself would wait, and sleep
        while True:
            try:
                first, beside, _, _ = self.connection.recvmsg(HEADER.size, _room(most), socket.MSG_DONTWAIT)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise TimeoutError from None
            except ConnectionResetError as error:
                raise ChannelClosed from error
        if not first:
            raise ChannelClosed
        length, tag = HEADER.unpack(first + self._at_once(HEADER.size - len(first), end))
        if length > MOST_BYTES:
            raise ChannelGarbled(f"a frame of {length} bytes")
        return tag, self._at_once(length, end), _descriptors(beside)

    def receive(self, deadline_s: float | None = None) -> tuple[int, bytes]:
        """Wait for a frame and return it. Raise TimeoutError if the deadline passes first."""
        end = None if deadline_s is None else time.monotonic() + deadline_s
        length, tag = HEADER.unpack(self._exactly(HEADER.size, end))
        if length > MOST_BYTES:
            raise ChannelGarbled(f"a frame of {length} bytes")
        return tag, self._exactly(length, end)

    def receive_json(self, deadline_s: float | None = None) -> dict[str, Any]:
        tag, payload = self.receive(deadline_s)
        if tag != JSON:
            raise ChannelGarbled(f"expected a JSON frame, got tag {tag}")
        return as_object(payload)

    def receive_json_with_descriptors(
        self, most: int = 4, deadline_s: float | None = None
    ) -> tuple[int, bytes, list[int]]:
        """Return a frame and the descriptors that came with its first bytes."""
        self.connection.settimeout(deadline_s)
        try:
            first, descriptors, _, _ = socket.recv_fds(self.connection, HEADER.size, most)
        except ConnectionResetError as error:
            raise ChannelClosed from error
        if not first:
            raise ChannelClosed
        header = first + (self._exactly(HEADER.size - len(first)) if len(first) < HEADER.size else b"")
        length, tag = HEADER.unpack(header)
        return tag, self._exactly(length), descriptors

    def _at_once(self, count: int, end: float) -> bytes:
        """Return bytes that have already arrived without reading the clock, and wait for the rest until `end`."""
        try:
            part = self.connection.recv(count, socket.MSG_DONTWAIT) if count else b""
        except BlockingIOError:
            part = b""
        except ConnectionResetError as error:
            raise ChannelClosed from error
        return part + self._exactly(count - len(part), end)

    def _exactly(self, count: int, end: float | None = None) -> bytes:
        """Return exactly this number of bytes, however small the pieces are. Raise TimeoutError after `end`."""
        parts = []
        while count:
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                raise TimeoutError
            self.connection.settimeout(left)
            try:
                part = self.connection.recv(count)
            except ConnectionResetError as error:
                raise ChannelClosed from error
            if not part:
                raise ChannelClosed
            parts.append(part)
            count -= len(part)
        return b"".join(parts)


def _room(descriptors: int) -> int:
    """Return the size of the buffer for descriptors.

    With a size of 0, the kernel closes descriptors that nobody asked for.
    """
    return socket.CMSG_SPACE(descriptors * DESCRIPTOR.itemsize) if descriptors else 0


def _descriptors(beside: list[tuple[int, int, bytes]]) -> list[int]:
    found = array(DESCRIPTOR.typecode)
    for level, kind, data in beside:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            found.frombytes(data[: len(data) - len(data) % found.itemsize])
    return found.tolist()


def as_object(payload: bytes) -> dict[str, Any]:
    try:
        message = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise ChannelGarbled("a JSON frame that is not JSON") from error
    if not isinstance(message, dict):
        raise ChannelGarbled("a JSON frame that is not an object")
    return message
