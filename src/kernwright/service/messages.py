"""Messages between a client and a server, typed and without unknown fields."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter


class ServiceMessage(BaseModel):
    """Base of every message."""

    model_config = ConfigDict(frozen=True, extra="forbid")


# From a client


class JudgeCall(ServiceMessage):
    """Judge a request. The server refuses a client of another version or environment."""

    kind: Literal["judge"] = "judge"
    token: str = Field(max_length=200)
    code: str = Field(max_length=200)
    environment: dict[str, str]
    request: dict[str, Any]
    shows_output: bool = False


class StatusCall(ServiceMessage):
    """Ask what the server is doing."""

    kind: Literal["status"] = "status"
    token: str = Field(max_length=200)


class CancelCall(ServiceMessage):
    """End the judgement of this connection. Its verdict covers the finished rows."""

    kind: Literal["cancel"] = "cancel"


# From a server


class Waiting(ServiceMessage):
    """The request is in the queue."""

    kind: Literal["waiting"] = "waiting"
    ahead: int = Field(description="judgements before this one")


class PhaseBegun(ServiceMessage):
    """A phase of the judgement has begun."""

    kind: Literal["phase"] = "phase"
    what: str
    steps: int


class StepDone(ServiceMessage):
    """A step of the phase is done."""

    kind: Literal["step"] = "step"
    note: str


class Printed(ServiceMessage):
    """Output of one worker of the contender."""

    kind: Literal["printed"] = "printed"
    text: str


class ServedBy(BaseModel):
    """The server that made a judgement."""

    model_config = ConfigDict(frozen=True)

    process: int = Field(description="process number of the server")
    judgement: int = Field(description="number of this judgement, counted by the server from 1")
    zygotes: tuple[int, ...] = Field(description="process numbers of the zygotes that were running at the end")


class Judged(ServiceMessage):
    """The verdict."""

    kind: Literal["judged"] = "judged"
    verdict: dict[str, Any]
    served: ServedBy


class Failed(ServiceMessage):
    """The judge's error: the same as without a server."""

    kind: Literal["failed"] = "failed"
    cause: str
    remedy: str
    is_environment: bool = False


class Refused(ServiceMessage):
    """The server does not judge this request. The client can judge it without a server."""

    kind: Literal["refused"] = "refused"
    cause: str


class ServerStatus(ServiceMessage):
    """The present work of the server."""

    kind: Literal["status"] = "status"
    process: int
    device: str
    judgements: int = Field(description="judgements that the server has ended")
    waiting: int
    judging: bool
    zygotes: tuple[int, ...]


ClientMessage = Annotated[JudgeCall | StatusCall | CancelCall, Field(discriminator="kind")]
ServerMessage = Annotated[
    Waiting | PhaseBegun | StepDone | Printed | Judged | Failed | Refused | ServerStatus, Field(discriminator="kind")
]
CLIENT_MESSAGE: TypeAdapter[JudgeCall | StatusCall | CancelCall] = TypeAdapter(ClientMessage)
SERVER_MESSAGE: TypeAdapter[Waiting | PhaseBegun | StepDone | Printed | Judged | Failed | Refused | ServerStatus] = (
    TypeAdapter(ServerMessage)
)
