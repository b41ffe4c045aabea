"""Connections: the thread of a server that talks to its clients, and the queue of their requests.

The judge needs the main thread for itself: signals arrive there, and a worker ends with the thread that started it.
"""

from __future__ import annotations

import contextlib
import hmac
import selectors
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from pydantic import ValidationError

from kernwright.judge.judge_request import JudgeRequest
from kernwright.judge.system.processors import apart_from
from kernwright.service.frames import MOST_REQUEST, FrameReader, FrameTooLarge, encode_frame
from kernwright.service.messages import (
    CLIENT_MESSAGE,
    CancelCall,
    Failed,
    JudgeCall,
    Refused,
    ServerStatus,
    ServiceMessage,
    StatusCall,
    Waiting,
)
from kernwright.service.peer import why_refused
from kernwright.service.request_form import BadForm, from_form
from kernwright.service.same_program import SameProgram

MOST_CONNECTIONS = 32
SILENT_S = 10.0  # a connection without a complete request is closed after this time
MOST_UNSENT = 2**20  # bytes beyond which progress is dropped, because the client does not read


@dataclass(eq=False)
class Client:
    """One connection."""

    connection: socket.socket
    reader: FrameReader = field(default_factory=lambda: FrameReader(MOST_REQUEST))
    unsent: bytearray = field(default_factory=bytearray)
    since: float = field(default_factory=time.monotonic)
    job: Job | None = None
    is_ending: bool = False  # close it when everything was sent


@dataclass(eq=False)
class Job:
    """A request in the queue or under judgement."""

    client: Client
    request: JudgeRequest
    shows_output: bool
    cancelled: bool = False


class Connections(threading.Thread):
    """The connections of a server.

    Args:
        listener: the listening socket.
        token: the secret that every request must contain.
        program: code and environment of the server.
        status: returns the server's status; the number of waiting jobs and the judging flag are added here.
        processor: the processor of the workers, which this thread avoids.
    """

    def __init__(
        self,
        listener: socket.socket,
        token: str,
        program: SameProgram,
        status: Callable[[], ServerStatus],
        processor: int | None,
    ) -> None:
        super().__init__(name="connections", daemon=True)
        self._listener, self._token, self._program, self._status = listener, token, program, status
        self._processor = processor
        self._main = threading.main_thread()
        self._changed = threading.Condition()
        self._queue: deque[Job] = deque()
        self._current: Job | None = None
        self._clients: set[Client] = set()
        self._ended = False
        self._selector = selectors.DefaultSelector()
        self._bell, self._ear = socket.socketpair()
        for own in (listener, self._bell, self._ear):
            own.setblocking(False)

    # For the main thread

    @property
    def current(self) -> Job | None:
        """The job under judgement."""
        return self._current

    def next_job(self, seconds: float) -> Job | None:
        """Wait for a job and make it the current one. Return None, and refuse further jobs, if none came in time."""
        with self._changed:
            if not self._changed.wait_for(lambda: bool(self._queue), seconds):
                self._ended = True
                return None
            self._current = self._queue.popleft()
            for ahead, job in enumerate(self._queue, 1):
                self._post(job.client, Waiting(ahead=ahead))
            return self._current

    def finish(self, job: Job, answer: ServiceMessage) -> None:
        """Send the answer of the current job and end its connection."""
        with self._changed:
            self._current = None
            job.client.job = None
            self._post(job.client, answer, is_last=True)

    def tell(self, job: Job, message: ServiceMessage) -> None:
        """Send progress. It is dropped if the client does not read."""
        with self._changed:
            if len(job.client.unsent) < MOST_UNSENT:
                self._post(job.client, message)

    def end(self) -> None:
        """Refuse all waiting jobs, send what is unsent, and end the thread."""
        with self._changed:
            self._ended = True
            for job in self._queue:
                self._post(job.client, Refused(cause="the server ends"), is_last=True)
            self._queue.clear()
        self._ring()
        self.join(5.0)

    def _ring(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._bell.send(b".")

    def _post(self, client: Client, message: ServiceMessage, is_last: bool = False) -> None:
        client.unsent += encode_frame(message)
        client.is_ending |= is_last
        self._ring()

    # The thread

    def run(self) -> None:
        with apart_from(self._processor):
            self._selector.register(self._listener, selectors.EVENT_READ)
            self._selector.register(self._ear, selectors.EVENT_READ)
            while not (self._ended and not any(client.unsent for client in self._clients)):
                for key, events in self._selector.select(1.0 if self._clients else None):
                    self._attend(key, events)
                self._look_after_clients()

    def _attend(self, key: selectors.SelectorKey, events: int) -> None:
        if key.fileobj is self._listener:
            self._accept()
        elif key.fileobj is self._ear:
            with contextlib.suppress(BlockingIOError):
                self._ear.recv(4096)
        elif isinstance(client := key.data, Client):
            if events & selectors.EVENT_READ:
                self._read(client)
            if events & selectors.EVENT_WRITE:
                self._write(client)

    def _look_after_clients(self) -> None:
        """Close connections of silent clients and of those that have their answer. Send what is unsent."""
        now = time.monotonic()
        for client in list(self._clients):
            with self._changed:
                is_idle = client.job is None and not client.unsent
                if is_idle and (client.is_ending or now - client.since > SILENT_S):
                    self._drop(client)
                    continue
                wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if client.unsent else 0)
                self._selector.modify(client.connection, wanted, client)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        connection.setblocking(False)
        client = Client(connection=connection)
        self._clients.add(client)
        self._selector.register(connection, selectors.EVENT_READ, client)
        if reason := why_refused(connection):
            self._refuse(client, reason)
        elif len(self._clients) > MOST_CONNECTIONS:
            self._refuse(client, f"the server has {MOST_CONNECTIONS} clients already")

    def _refuse(self, client: Client, reason: str) -> None:
        with self._changed:
            self._post(client, Refused(cause=reason), is_last=True)

    def _read(self, client: Client) -> None:
        try:
            data = client.connection.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        with self._changed:
            if not data:
                self._drop(client)
            elif not client.is_ending:
                self._take(client, data)

    def _take(self, client: Client, data: bytes) -> None:
        try:
            for payload in client.reader.feed(data):
                self._handle(client, CLIENT_MESSAGE.validate_json(payload))
        except (FrameTooLarge, BadForm) as wrong:
            self._fail(client, f"the server cannot read a request: {wrong}")
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            self._fail(client, f"the server cannot read a request: {first['msg']}"[:500])

    def _fail(self, client: Client, cause: str) -> None:
        remedy = "use the client of the same version of Kernwright"
        self._post(client, Failed(cause=cause, remedy=remedy), is_last=True)

    def _handle(self, client: Client, message: JudgeCall | StatusCall | CancelCall) -> None:
        if isinstance(message, CancelCall):
            self._cancel(client.job)
            return
        if not hmac.compare_digest(message.token.encode(), self._token.encode()):
            self._post(client, Refused(cause="the token is wrong"), is_last=True)
        elif isinstance(message, StatusCall):
            found = {"waiting": len(self._queue), "judging": self._current is not None}
            self._post(client, self._status().model_copy(update=found), is_last=True)
        elif (difference := self._program.difference(message.code, message.environment)) or self._ended:
            self._post(client, Refused(cause=difference or "the server ends"), is_last=True)
        elif client.job is not None:
            raise BadForm("a connection has one request")
        else:
            self._enqueue(client, message)

    def _enqueue(self, client: Client, call: JudgeCall) -> None:
        request = from_form(call.request)
        if not request.quick:
            self._post(client, Refused(cause="a full run is evidence and starts afresh"), is_last=True)
            return
        ahead = len(self._queue) + (self._current is not None)
        client.job = Job(client, request, call.shows_output)
        self._queue.append(client.job)
        if ahead:
            self._post(client, Waiting(ahead=ahead))
        self._changed.notify()

    def _cancel(self, job: Job | None) -> None:
        """Take a job out of the queue, or interrupt its judgement like Ctrl-C."""
        if job is None or job.cancelled:
            return
        job.cancelled = True
        if job in self._queue:
            self._queue.remove(job)
            job.client.job = None
            cause = "the judgement was cancelled before it began"
            self._post(job.client, Failed(cause=cause, remedy="run the command again"), is_last=True)
        elif job is self._current and self._main.ident is not None:
            signal.pthread_kill(self._main.ident, signal.SIGINT)

    def _drop(self, client: Client) -> None:
        """Close a connection. If it has a job, the job is cancelled."""
        if client in self._clients:
            self._cancel(client.job)
            self._clients.discard(client)
            self._selector.unregister(client.connection)
            client.connection.close()
            client.unsent.clear()

    def _write(self, client: Client) -> None:
        with self._changed:
            if client not in self._clients:
                return
            try:
                sent = client.connection.send(client.unsent)
            except BlockingIOError:
                return
            except OSError:
                self._drop(client)
                return
            del client.unsent[:sent]
