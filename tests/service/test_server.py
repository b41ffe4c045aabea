"""A server in a process of its own: judgements one after the other, clients that leave, requests that nobody sends."""

from __future__ import annotations

import contextlib
import json
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kernwright.core.errors import KernwrightError
from kernwright.judge.judge_request import JudgeRequest
from kernwright.judge.system import procfs
from kernwright.service.address import FOLDER_VARIABLE, Address
from kernwright.service.client import (
    Conversation,
    NotServed,
    judge_by_server,
    quick_judge,
    served_judge,
    server_status,
)
from kernwright.service.frames import LENGTH, MOST_REQUEST, encode_frame
from kernwright.service.messages import CancelCall, Failed, JudgeCall, Judged, PhaseBegun, Refused, StepDone
from kernwright.service.request_form import resolved, to_form
from kernwright.service.same_program import SameProgram

ROOT = Path(__file__).parents[2]
RIGHT = "def axpy(x, w, alpha=2.0):\n    return alpha * x + w\n"
WRONG = "def axpy(x, w, alpha=2.0):\n    return alpha * x + w * (1.01 if alpha == 3.0 else 1.0)\n"
ENDLESS = "import time\ndef axpy(x, w, alpha=2.0):\n    time.sleep(0.2)\n    return alpha * x + w\n"
# Reaches for the server as a candidate would: through its folder, its token, its socket.
REACHING = """
import os, socket

def reached(folder):
    ways = []
    for way in (lambda: os.listdir(folder), lambda: open(folder + "/cpu.json").read(), lambda: _connected(folder)):
        try:
            way()
            ways.append(way)
        except OSError:
            pass
    return len(ways)

def _connected(folder):
    with socket.socket(socket.AF_UNIX) as own:
        own.connect(folder + "/cpu.sock")

"""


def cli(*words: str) -> list[str]:
    return [sys.executable, "-m", "kernwright", "judge", *words]


@contextlib.contextmanager
def serving(idle_minutes: float = 5.0) -> Iterator[subprocess.Popen[str]]:
    """Run a server and wait until it serves."""
    server = subprocess.Popen(
        cli("--serve", "--idle", str(idle_minutes)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert server.stdout is not None
    try:
        assert "serving cpu" in server.stdout.readline()
        yield server
    finally:
        server.kill()
        server.wait()
        server.stdout.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, private_tmp: Path) -> Iterator[Path]:
    """The folder of the sockets. Its path is longer than the address of a socket may be."""
    long = tmp_path_factory.mktemp("s" * 100) / "servers"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FOLDER_VARIABLE, str(long))
        patch.setenv("KERNWRIGHT_LEDGER", str(private_tmp / "ledger"))
        yield long


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[subprocess.Popen[str]]:
    with serving() as process:
        yield process


@pytest.fixture
def request_of(tmp_path: Path, tiny_folder: Path, write_candidate: Callable[..., Path]) -> Callable[..., JudgeRequest]:
    """Return a quick request for a candidate with this source, always in the same folder."""

    def make(source: str, rows: str = "axpy_small") -> JudgeRequest:
        candidate = write_candidate(tmp_path / "candidate", source)
        return JudgeRequest(task=str(tiny_folder), candidate=candidate, rows=rows, quick=True)

    return make


def call_of(asked: JudgeRequest, **changed: Any) -> JudgeCall:
    record, program = Address("cpu").known_server(), SameProgram.here()
    assert record is not None
    call = JudgeCall(
        token=record.token, code=program.code, environment=program.environment, request=to_form(resolved(asked))
    )
    return call.model_copy(update=changed)


@contextlib.contextmanager
def conversation() -> Iterator[Conversation]:
    with Address("cpu").connect(5.0) as connection:
        connection.settimeout(60.0)
        yield Conversation(connection, 0)


def begun(talk: Conversation, request: JudgeRequest) -> None:
    """Send a request and wait until its judgement runs."""
    talk.send(call_of(request))
    while not isinstance(talk.receive(), PhaseBegun):
        pass


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60.0
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_second_judgement_starts_neither_process_nor_zygote_and_sees_the_edit(
    server: subprocess.Popen[str], folder: Path, request_of: Callable[..., JudgeRequest]
) -> None:
    before = server_status("cpu")
    wrong = judge_by_server(request_of(WRONG, "axpy_wide"))
    # The same folder, corrected. Each of its workers also tries to reach the server.
    reaching = f"{REACHING}if reached({str(folder)!r}):\n    raise RuntimeError('the server is open')\n\n{RIGHT}"
    namespace: dict[str, Any] = {}
    exec(REACHING, namespace)
    assert namespace["reached"](str(folder)) >= 2, "from outside a worker, folder and token are open to their owner"
    right = judge_by_server(request_of(reaching, "axpy_wide"))
    assert wrong.verdict.verdict == "incorrect"
    assert right.verdict.verdict not in ("incorrect", "failed", "tampered"), right.verdict.reasons
    assert wrong.served is not None and right.served is not None
    assert (right.served.process, right.served.judgement) == (server.pid, wrong.served.judgement + 1)
    assert right.served.zygotes == wrong.served.zygotes == before.zygotes != ()
    assert right.verdict.rows[0].kernels.keys() == {"baseline", "candidate"}, "a served judgement counts kernels"
    assert not right.verdict.evidence
    assert set(procfs.living_children(server.pid)) == set(before.zygotes), "no worker outlives its judgement"


def test_a_client_that_leaves_and_one_that_cancels_end_their_judgements(
    server: subprocess.Popen[str], request_of: Callable[..., JudgeRequest]
) -> None:
    with conversation() as talk:
        begun(talk, request_of(ENDLESS))
    until(lambda: not server_status("cpu").judging)
    with conversation() as talk:
        begun(talk, request_of(ENDLESS))
        talk.send(CancelCall())
        answer: Any = StepDone(note="")
        while isinstance(answer, PhaseBegun | StepDone):
            answer = talk.receive()
    assert isinstance(answer, Judged) and answer.verdict["interrupted"] and not answer.verdict["evidence"]
    assert set(procfs.living_children(server.pid)) == set(server_status("cpu").zygotes)


class Phases:
    """Progress that notes the phases."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def phase(self, what: str, steps: int) -> None:
        self.seen.append(what)

    def step(self, note: str) -> None: ...


def test_two_clients_wait_for_each_other_and_a_waiting_one_may_leave(
    server: subprocess.Popen[str], request_of: Callable[..., JudgeRequest]
) -> None:
    request, phases = request_of(ENDLESS), Phases()
    found: list[Any] = []
    with conversation() as first, conversation() as leaving:
        begun(first, request)
        leaving.send(call_of(request))
        leaving.receive()
        second = threading.Thread(target=lambda: found.append(served_judge(request_of(RIGHT), phases)))
        second.start()
        until(lambda: server_status("cpu").waiting == 2)
        leaving.connection.close()
        until(lambda: server_status("cpu").waiting == 1)
    second.join(60.0)
    assert phases.seen[0].startswith("waiting for") and any("timing" in phase for phase in phases.seen)
    assert found[0].verdict not in ("incorrect", "failed", "tampered")


def answer_to(data: bytes) -> Any:
    with conversation() as talk:
        with contextlib.suppress(OSError):
            talk.connection.sendall(data)
        answer = talk.receive()
        with pytest.raises(NotServed):  # there is one answer
            talk.receive()
        return answer


def framed(payload: bytes) -> bytes:
    return LENGTH.pack(len(payload)) + payload


def test_wrong_requests_get_one_error_and_the_server_goes_on(
    server: subprocess.Popen[str], request_of: Callable[..., JudgeRequest]
) -> None:
    request = request_of(RIGHT)
    form = call_of(request).request
    before = server_status("cpu")
    unreadable = [
        LENGTH.pack(MOST_REQUEST + 1),
        framed(b"\xff\xfe not JSON"),
        framed(b'{"kind": "shutdown"}'),
        framed(b"[" * 100_000),
        framed(json.dumps(call_of(request).model_dump() | {"more": 1}).encode()),
        *(
            encode_frame(call_of(request, request=form | wrong))
            for wrong in ({"output": "x"}, {"deadline_s": "soon"}, {"candidate": "relative"}, {"task": "tiny"})
        ),
    ]
    assert [type(answer_to(data)) for data in unreadable] == [Failed] * len(unreadable)
    environment = call_of(request).environment | {"CUDA_VISIBLE_DEVICES": "7"}
    refused = {
        "token": call_of(request, token="0" * 64),
        "changed": call_of(request, code="another"),
        "CUDA_VISIBLE_DEVICES": call_of(request, environment=environment),
        "evidence": call_of(request, request=form | {"quick": False}),
    }
    for named, call in refused.items():
        answer = answer_to(encode_frame(call))
        assert isinstance(answer, Refused) and named in answer.cause
    assert server_status("cpu") == before
    with pytest.raises(KernwrightError, match="no_such_row"):  # an error of the judge is the same as without a server
        judge_by_server(request_of(RIGHT, "no_such_row"))


def test_the_command_repeats_the_failing_case_of_the_subtly_wrong_example(
    server: subprocess.Popen[str], tmp_path: Path
) -> None:
    """The failing row is the second one, and the command names it alone."""

    def judged(words: list[str]) -> dict[str, Any]:
        out = tmp_path / "verdict.json"
        done = subprocess.run(
            [*words, "--json", str(out)], capture_output=True, text=True, check=False, cwd=ROOT, timeout=120
        )
        assert done.returncode == 1, done.stderr
        found: dict[str, Any] = json.loads(out.read_text())
        assert found["served"]["process"] == server.pid
        return found

    rows = "smoke_plain_s195_d3072_row-bf16,smoke_plain_s19_d3072_row-bf16"
    candidate = "examples/candidates/subtly_wrong_cpp"
    first = judged(cli("norm_scale_shift", "--candidate", candidate, "--rows", rows, "--quick"))
    failed = first["next"]["failures"][-1]
    name, _, *words = shlex.split(failed["command"])
    assert name == "kernwright" and failed["exact"] and failed["case"]["distribution"] == "offset"
    again = judged(cli(*words))
    (repeated,) = again["next"]["failures"]
    assert (repeated["row"], repeated["case"]) == (failed["row"], failed["case"])
    assert repeated["error"] == failed["error"], "the figures of the error show that the inputs were the same"


def test_a_killed_server_leaves_no_worker_and_the_next_one_takes_its_place(
    folder: Path, server: subprocess.Popen[str], request_of: Callable[..., JudgeRequest], tmp_path: Path
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FOLDER_VARIABLE, str(tmp_path / "others"))
        with serving() as killed, conversation() as talk:
            begun(talk, request_of(ENDLESS))
            children = procfs.living_children(killed.pid)
            assert len(children) > len(server_status("cpu").zygotes)
            with pytest.raises(KernwrightError, match="running already"), Address("cpu").listening():
                pass
            killed.send_signal(signal.SIGKILL)
            killed.wait()
            with pytest.raises(NotServed):
                while True:
                    talk.receive()
        until(lambda: not any(procfs.is_alive(pid) for pid in children))
        said: list[str] = []
        assert quick_judge(request_of(RIGHT), say=said.append).served is None
        assert len(said) == 1 and str(killed.pid) in said[0]
        with serving(idle_minutes=0.02) as next_one:
            assert served_judge(request_of(RIGHT)).quick
            assert next_one.wait(60) == 0
        assert sorted(path.name for path in (tmp_path / "others").iterdir()) == ["cpu.lock"]
        with pytest.raises(NotServed) as none:
            served_judge(request_of(RIGHT))
        assert none.value.no_server


def test_a_folder_that_others_can_enter_is_refused(tmp_path: Path) -> None:
    open_folder = tmp_path / "open"
    open_folder.mkdir(mode=0o755)
    for use in (lambda: Address("cpu", open_folder).connect(1.0), Address("cpu", open_folder).listening().__enter__):
        with pytest.raises(KernwrightError, match="only this user"):
            use()
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(OSError):
        Address("cpu", tmp_path / "link").connect(1.0)
