"""Answers: a worker's untrusted messages, accepted as typed answers or turned into faults."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from kernwright.judge.process.faults import WorkerCheated, WorkerFailed
from kernwright.judge.protocol.channel import ChannelGarbled, as_object
from kernwright.judge.protocol.messages import MOST_FRAMES, AnswerT, Failure, decode_answer, printable

MOST_FRAME = 240  # characters


def accept_answer(kind: type[AnswerT], answer: dict[str, Any]) -> AnswerT:
    """Return a worker's answer as the expected kind. Raise `WorkerFailed` for an error, `WorkerCheated` for garbage."""
    if "error" in answer:
        raise failure_of(answer)
    with cheated_if_garbled():
        return decode_answer(kind, answer)


def failure_of_payload(payload: bytes) -> WorkerFailed:
    """Return the fault that a worker reports instead of the end of a block."""
    with cheated_if_garbled():
        return failure_of({"error": "an answer of another kind"} | as_object(payload))


def failure_of(answer: dict[str, Any]) -> WorkerFailed:
    """Return the fault that a worker reports."""
    failure = Failure.model_validate(answer)
    frames = failure.frames if isinstance(failure.frames, list | tuple) else ()
    return WorkerFailed(
        printable(failure.error),
        printable(failure.kind),
        [printable(frame)[:MOST_FRAME].replace("\n", " ") for frame in frames[-MOST_FRAMES:]],
    )


def cheated(garbled: ChannelGarbled) -> WorkerCheated:
    """Return the fault of a worker that sent garbage."""
    return WorkerCheated(f"sent {garbled} on the judge's pipe")


@contextlib.contextmanager
def cheated_if_garbled() -> Iterator[None]:
    """Turn garbage on the pipe into the worker's fault."""
    try:
        yield
    except ChannelGarbled as garbled:
        raise cheated(garbled) from None
