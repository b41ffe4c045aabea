"""Frames: the units that travel through the message pipe.

A frame is a length, a tag and a payload. `J` carries a JSON object, `R` a request to run a block, and `D` the answer
that a block is done. The block loop in C (`worker/block_loop.c`) reads and writes `R` and `D` frames without Python.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

HEADER = struct.Struct("<IB")
JSON, RUN, DONE = ord("J"), ord("R"), ord("D")
WITH_PYTHON, STAYS_AWAKE, IS_AWAKE = 1, 2, 4  # flags of a request to run a block
MOST_BYTES = 16 * 2**20


def encode_block(flags: int, order: Sequence[int]) -> bytes:
    """Return the payload of an `R` frame: flags, then the number of the slot of each call."""
    return struct.pack(f"<{len(order) + 1}H", flags, *order)


def decode_block(payload: bytes) -> tuple[int, list[int]]:
    """Return the flags and the slots of an `R` frame."""
    flags, *order = struct.unpack(f"<{len(payload) // 2}H", payload)
    return flags, order


def decode_pointers(payload: bytes) -> tuple[int, ...]:
    """Return the addresses in a `D` frame: one for each output of each call."""
    return struct.unpack(f"<{len(payload) // 8}Q", payload)
