"""Frames: the units that travel between a client and a server, a length and then a JSON object."""

from __future__ import annotations

import struct

from pydantic import BaseModel

LENGTH = struct.Struct(">I")
MOST_REQUEST = 256 * 2**10  # bytes of a frame to a server
MOST_ANSWER = 64 * 2**20  # bytes of a frame from a server


class FrameTooLarge(Exception):
    """A frame that exceeds the limit of its direction."""


def encode_frame(message: BaseModel) -> bytes:
    """Return a message as a frame."""
    payload = message.model_dump_json().encode()
    return LENGTH.pack(len(payload)) + payload


class FrameReader:
    """Collects received bytes and returns the complete frames."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Add bytes and return the payloads of the frames that are complete now."""
        self._buffer += data
        frames = []
        while len(self._buffer) >= LENGTH.size:
            (length,) = LENGTH.unpack_from(self._buffer)
            if length > self._most:
                raise FrameTooLarge(f"a frame of {length} bytes, the limit is {self._most}")
            end = LENGTH.size + length
            if len(self._buffer) < end:
                break
            frames.append(bytes(self._buffer[LENGTH.size : end]))
            del self._buffer[:end]
        return frames
