"""Client: judge through the server of a device, if there is one.

verdict = served_judge(request)   # raises NotServed if there is no server, or if it refuses
verdict = quick_judge(request)    # the same, and without a server in this process
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from pydantic import ValidationError

from kernwright.core.errors import EnvironmentProblem, KernwrightError
from kernwright.judge.judge_request import JudgeRequest
from kernwright.judge.record.verdict import Verdict
from kernwright.service.address import Address
from kernwright.service.frames import MOST_ANSWER, FrameReader, FrameTooLarge, encode_frame
from kernwright.service.messages import (
    SERVER_MESSAGE,
    CancelCall,
    Failed,
    JudgeCall,
    Judged,
    PhaseBegun,
    Printed,
    Refused,
    ServedBy,
    ServerStatus,
    ServiceMessage,
    StatusCall,
    StepDone,
    Waiting,
)
from kernwright.service.request_form import resolved, to_form
from kernwright.service.same_program import SameProgram

CONNECT_S = 5.0
STATUS_S = 10.0


class NotServed(Exception):
    """Why a request was not judged by a server. `no_server` is True if none was started."""

    def __init__(self, reason: str, no_server: bool = False) -> None:
        super().__init__(reason)
        self.no_server = no_server


class Shown(Protocol):
    """Receiver of the progress of a judgement, as the judge's `Progress`."""

    def phase(self, what: str, steps: int) -> None: ...

    def step(self, note: str) -> None: ...


@dataclass(frozen=True)
class ServedVerdict:
    """A verdict and the server that made it; `served` is None if this process made it."""

    verdict: Verdict
    served: ServedBy | None = None


def served_judge(request: JudgeRequest, progress: Shown | None = None) -> Verdict:
    """Judge a quick request through the server of its device and return the verdict.

    Args:
        request: the options of `kernwright judge`; `quick` must be set.
        progress: receives how far the judgement has come.

    Raises:
        NotServed: there is no server, or it does not judge this request.
        KernwrightError: the request is wrong, or cannot be carried out on this machine.
    """
    return judge_by_server(request, progress).verdict


def quick_judge(
    request: JudgeRequest, progress: Shown | None = None, say: Callable[[str], None] | None = None
) -> ServedVerdict:
    """Judge a quick request through a server, or in this process if no server does.

    Args:
        request: the options of `kernwright judge`.
        progress: receives how far the judgement has come.
        say: receives a line if a server does not judge the request.
    """
    try:
        return judge_by_server(request, progress)
    except NotServed as reason:
        if say is not None and not reason.no_server:
            say(f"judging without the server: {reason}")
    from kernwright.judge.request import judge

    return ServedVerdict(judge(request, progress))


def judge_by_server(request: JudgeRequest, progress: Shown | None = None) -> ServedVerdict:
    """Judge a request through the server of its device. For the errors see `served_judge`."""
    address = Address(request.device)
    record = address.known_server()
    if record is None:
        raise NotServed(f"no server of {address.device} runs", no_server=True)
    program = SameProgram.here()
    call = JudgeCall(
        token=record.token,
        code=program.code,
        environment=program.environment,
        request=to_form(resolved(request)),
        shows_output=request.output is not None,
    )
    with _conversation(address, record.pid) as conversation:
        conversation.send(call)
        return _answered(conversation, request, progress)


def server_status(device: str) -> ServerStatus:
    """Return what the server of a device is doing. Raises NotServed if there is none."""
    address = Address(device)
    record = address.known_server()
    if record is None:
        raise NotServed(f"no server of {address.device} runs", no_server=True)
    with _conversation(address, record.pid) as conversation:
        conversation.send(StatusCall(token=record.token))
        conversation.connection.settimeout(STATUS_S)
        answer = conversation.receive()
        if not isinstance(answer, ServerStatus):
            raise NotServed(f"the server answered {answer.kind!r}")
        return answer


class Conversation:
    """A connection to a server."""

    def __init__(self, connection: socket.socket, pid: int) -> None:
        self.connection, self._pid = connection, pid
        self._reader = FrameReader(MOST_ANSWER)
        self._received: list[bytes] = []

    def send(self, message: ServiceMessage) -> None:
        try:
            self.connection.sendall(encode_frame(message))
        except OSError:
            raise self._ended() from None

    def receive(self) -> Waiting | PhaseBegun | StepDone | Printed | Judged | Failed | Refused | ServerStatus:
        """Return the next message."""
        try:
            while not self._received:
                data = self.connection.recv(65536)
                if not data:
                    raise self._ended()
                self._received += self._reader.feed(data)
            return SERVER_MESSAGE.validate_json(self._received.pop(0))
        except (OSError, FrameTooLarge, ValidationError) as error:
            raise self._ended(error) from None

    def _ended(self, error: Exception | None = None) -> NotServed:
        return NotServed(f"the server (process {self._pid}) ended{f': {error}' if error else ''}")


@contextlib.contextmanager
def _conversation(address: Address, pid: int) -> Iterator[Conversation]:
    try:
        connection = address.connect(CONNECT_S)
    except OSError as error:
        raise NotServed(f"the server (process {pid}) is gone: {error.strerror or error}") from None
    with connection:
        connection.settimeout(None)
        yield Conversation(connection, pid)


def _answered(conversation: Conversation, request: JudgeRequest, progress: Shown | None) -> ServedVerdict:
    """Show the progress until the answer comes. The first Ctrl-C cancels the judgement, the second one leaves it."""
    cancelled = False
    while True:
        try:
            message = conversation.receive()
            if isinstance(message, Judged):
                return ServedVerdict(Verdict.model_validate(message.verdict), message.served)
            _show(message, request, progress)
        except KeyboardInterrupt:
            if cancelled:
                raise
            cancelled = True
            conversation.send(CancelCall())
        except NotServed:
            if cancelled:
                raise KeyboardInterrupt from None
            raise


def _show(message: object, request: JudgeRequest, progress: Shown | None) -> None:
    """Show progress, or raise the error that the server reports."""
    match message:
        case Refused(cause=cause):
            raise NotServed(cause)
        case Failed(cause=cause, remedy=remedy, is_environment=is_environment):
            raise (EnvironmentProblem if is_environment else KernwrightError)(cause, remedy)
        case Printed(text=text) if request.output is not None:
            request.output(text)
        case Waiting(ahead=ahead) if progress is not None:
            progress.phase(f"waiting for {ahead} earlier judgement{'s' if ahead > 1 else ''}", 1)
        case PhaseBegun(what=what, steps=steps) if progress is not None:
            progress.phase(what, steps)
        case StepDone(note=note) if progress is not None:
            progress.step(note)
