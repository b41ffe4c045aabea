"""Messages: typed requests of the judge and typed answers of a worker or a zygote.

Every message travels as one JSON object. A worker's answers are untrusted: `decode_answer` validates each field and
raises `ChannelGarbled` for anything that an honest worker does not send. Unknown fields of an answer are ignored.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictInt, TypeAdapter, ValidationError

from kernwright.judge.protocol.channel import ChannelGarbled, as_object
from kernwright.judge.protocol.isolation import Isolation
from kernwright.judge.protocol.orders import JudgeMessage, RowSignature, SideOrders, TensorPlacement, WorkerOrders

MOST_TEXT = 4000
MOST_FRAMES = 4  # frames of an error's traceback


def printable(text: object) -> str:
    """Return a worker's text without control characters and lone surrogates, for a terminal and for a record."""
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in str(text)[:MOST_TEXT])


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("is not text")
    return printable(value)


Text = Annotated[str, BeforeValidator(_text)]
Address = Annotated[int, Field(strict=True, ge=0, lt=2**64)]
MOST_KERNELS = 200


# Requests


class Attach(JudgeMessage):
    """Lend the worker memory for its outputs, for its whole life. The descriptor travels beside the message."""

    do: Literal["attach"] = "attach"
    bytes: int
    pool: str  # library of the allocator that hands this memory out


class Load(JudgeMessage):
    """Load or build the code of a side."""

    do: Literal["load"] = "load"
    side: SideOrders


class OpenRow(JudgeMessage):
    """Open a row: map its slots, whose memory travels beside the message as a descriptor, and bind the call."""

    do: Literal["open_row"] = "open_row"
    bytes: int
    slots: int
    pitch: int
    plan: tuple[TensorPlacement | None, ...]
    row: RowSignature
    changes_inputs: bool


class OpenLoop(JudgeMessage):
    """Make the loop without Python over the slots of the open row."""

    do: Literal["open_loop"] = "open_loop"


class Prepare(JudgeMessage):
    """Free the outputs of earlier calls except those in `hold`, before new contents arrive."""

    do: Literal["prepare"] = "prepare"
    hold: tuple[int, ...] = ()


class Check(JudgeMessage):
    """Call once on a slot, untimed, and check what the call returns."""

    do: Literal["check"] = "check"
    slot: int


class Rehearse(JudgeMessage):
    """Call once on a slot, untimed, so that the first call's compilation is over."""

    do: Literal["rehearse"] = "rehearse"
    slot: int


CensusSource = Literal["profiler", "graph", "either"]


class Census(JudgeMessage):
    """List the kernels that one call launches.

    They are read by a profiler or from a graph of the call. With "either", the profiler is used if there is no graph.
    """

    do: Literal["census"] = "census"
    slot: int
    source: CensusSource


class Explain(JudgeMessage):
    """Report which implementation of a shipped op runs on a slot."""

    do: Literal["explain"] = "explain"
    slot: int


class Events(JudgeMessage):
    """Return the time of the last block by the device's events."""

    do: Literal["events"] = "events"


Request = Attach | Load | OpenRow | OpenLoop | Prepare | Check | Rehearse | Census | Explain | Events
_requests: TypeAdapter[Request] = TypeAdapter(Annotated[Request, Field(discriminator="do")])


def decode_request(payload: bytes) -> Request:
    """Return the judge's request. The worker trusts the judge: an invalid request is an error of ours."""
    return _requests.validate_python(as_object(payload))


# Answers


class WorkerAnswer(BaseModel):
    """Base of all answers. Values come from an untrusted process."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Done(WorkerAnswer):
    """The request was carried out; there is nothing to report."""

    ok: bool = True


class Ready(WorkerAnswer):
    """The first message of a worker, sent before any foreign code runs in it."""

    isolation: Isolation


class Failure(WorkerAnswer):
    """The side does not work. All texts may be anything."""

    error: Any
    kind: Any = ""
    frames: Any = ()  # places in the side's own files, the innermost one last


class RegionAddress(WorkerAnswer):
    """The address of the lent memory in the worker's address space."""

    region: StrictInt


class LoopAnswer(WorkerAnswer):
    """The answer to OpenLoop: whether the native loop exists, and the reason if it does not."""

    unavailable: Text | None = None


class OutputPointers(WorkerAnswer):
    """The addresses of one call's outputs in the worker's memory."""

    pointers: tuple[Address, ...]


class LaunchedKernel(WorkerAnswer):
    """One kernel of a census."""

    name: Text
    stream: StrictInt
    count: StrictInt


class LaunchedKernels(WorkerAnswer):
    """The answer to a census."""

    kernels: tuple[LaunchedKernel, ...]


class ChosenImplementation(WorkerAnswer):
    """The implementation that a call runs, and why better ones were refused."""

    backend: Text
    contract: Text
    refused: tuple[Text, ...]


class EventTime(WorkerAnswer):
    """The time of the last block by the device's events; zero if it has none."""

    ns: StrictInt


CALLED = {"called": True}  # interim answer to a check: the call returned, and only the device may still be busy
AnswerT = TypeVar("AnswerT", bound=WorkerAnswer)


def decode_answer(kind: type[AnswerT], message: dict[str, Any]) -> AnswerT:
    """Return a worker's answer as the expected type, or raise `ChannelGarbled`."""
    try:
        return kind.model_validate(message)
    except (ValidationError, RecursionError):
        raise ChannelGarbled(f"an invalid {kind.__name__} message") from None


# Messages of the zygote


class Fork(JudgeMessage):
    """Fork a worker. Its end of the pipe and its log travel beside the message as descriptors."""

    environment: dict[str, str]
    folder: str
    orders: WorkerOrders


class ZygoteStarted(WorkerAnswer):
    """The zygote is ready to fork, or a module that it imported has started the GPU's driver."""

    spoilt_by: Text | None = None


class Forked(WorkerAnswer):
    """The process id of the new worker."""

    pid: StrictInt
