"""Many verifications at once: real processes, on tiny tasks."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kernwright.cli.main import app
from kernwright.judge.checks.parallel_verification import Unverified, VerificationJob, VerificationPool
from kernwright.judge.checks.verification import RowFinding
from kernwright.tasks.task import Task, load_task

pytestmark = pytest.mark.slow

ADAPTERS = """
import time


def hangs(op):
    time.sleep(600)
"""


@pytest.fixture
def tasks(tmp_path: Path, write_task: Callable[..., Path], task_texts: Any) -> list[Task]:
    found = []
    for name in ("one", "two"):
        folder = write_task(tmp_path / name, toml=task_texts["toml"].replace('"tiny"', f'"{name}"'))
        (folder / "baselines.py").write_text(ADAPTERS)
        found.append(load_task(folder))
    return found


class Steps:
    """Progress that records its calls."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def phase(self, what: str, steps: int) -> None:
        self.seen.append(f"{what}: {steps}")

    def step(self, note: str) -> None:
        self.seen.append(note)


def first_try_fails(monkeypatch: pytest.MonkeyPatch, command: Any) -> list[str]:
    """Make the first process of every job fail, for example for lack of memory. Return the labels of all tries."""
    asked: list[str] = []

    def stumbling(self: VerificationPool, job: VerificationJob, findings: Path) -> list[str]:
        asked.append(job.label)
        return ["false"] if asked.count(job.label) == 1 else command(self, job, findings)

    monkeypatch.setattr(VerificationPool, "_command", stumbling)
    return asked


def test_findings_are_shown_before_the_failures_of_others(
    tasks: list[Task], private_tmp: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first_try_fails(monkeypatch, VerificationPool._command)
    words = ["baseline", "verify", "eager", "nobodys", "--task", str(tasks[0].folder)]
    some = CliRunner().invoke(app, [*words, "--processes", "2", "--json", str(tmp_path / "some.json")])
    assert isinstance(some.exception, Unverified)
    assert "nobodys on one: " in str(some.exception) and "has no baseline 'nobodys'" in str(some.exception)
    found = json.loads((tmp_path / "some.json").read_text())
    assert [own["row"] for own in found] == [row.id for row in tasks[0].select("smoke")]
    assert {(own["baseline"], own["finding"]) for own in found} == {("eager", "agrees")}


AGREES = """
import json, sys
rows = [dict(json.loads(sys.argv[2]), row=row) for row in sys.argv[3:]]
open(sys.argv[1], "w").write(json.dumps(rows))
"""


def test_a_verification_that_fails_beside_others_is_tried_again_alone(
    tasks: list[Task], monkeypatch: pytest.MonkeyPatch
) -> None:
    def agreeing(self: VerificationPool, job: VerificationJob, findings: Path) -> list[str]:
        own = RowFinding(baseline=job.baseline, task=job.task.name, row="", op="axpy", finding="agrees")
        rows = [row.id for row in job.task.select(job.rows)]
        return [sys.executable, "-S", "-c", AGREES, str(findings), json.dumps(asdict(own)), *rows]

    asked = first_try_fails(monkeypatch, agreeing)
    steps = Steps()
    jobs = [job for task in tasks for job in VerificationJob.shared_out("eager", task, "smoke", "cpu")]
    found = list(VerificationPool("cpu", 2).run(jobs, steps))
    assert {(own.task, own.row) for own in found} == {(t.name, row.id) for t in tasks for row in t.select("smoke")}
    assert steps.seen == ["verifying, 2 at once: 2", *steps.seen[1:]]
    assert sorted(steps.seen[1:]) == [job.label for job in jobs]
    assert sorted(asked) == sorted(2 * [job.label for job in jobs])


def test_a_process_that_was_ended_early_has_not_verified_the_rest(
    tasks: list[Task], private_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process keeps its earlier findings, because it was interrupted and not killed."""
    nothing = "import pathlib, sys; pathlib.Path(sys.argv[1]).write_text('[]')"
    monkeypatch.setattr(VerificationPool, "_command", lambda *given: [sys.executable, "-c", nothing, str(given[2])])
    jobs = [job for task in tasks for job in VerificationJob.shared_out("eager", task, "smoke", "cpu")]
    with pytest.raises(Unverified, match="eager on one: ended with status 0"):
        list(VerificationPool("cpu", 2).run(jobs, Steps()))


SECOND_TRIES = """
import sys
from kernwright.judge.checks import parallel_verification as verifiers
from kernwright.judge.checks.parallel_verification import VerificationPool

asked = []


def command(self, job, findings):
    asked.append(job.label)
    return ["false"] if asked.count(job.label) == 1 else ["sleep", "333"]


VerificationPool._command = command
verifiers.GRACE_S = 1.0
from kernwright.cli.main import main

sys.argv = ["kernwright", "baseline", "verify", "eager", *sys.argv[1:], "--processes", "2"]
main()
"""


def test_an_end_during_a_second_try_leaves_no_process_behind(tasks: list[Task], private_tmp: Path) -> None:
    """It also ends a process that ignores interrupts, as children of a background job do."""
    folders = [word for task in tasks for word in ("--task", str(task.folder))]
    parent = subprocess.Popen(
        [sys.executable, "-c", SECOND_TRIES, *folders], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )  # fmt: skip
    end = time.monotonic() + 60.0
    while not (sleeping := [pid for pid in children_of(parent.pid) if is_asleep(pid)]) and time.monotonic() < end:
        time.sleep(0.1)
    assert len(sleeping) == 1
    parent.send_signal(signal.SIGTERM)
    assert parent.wait(60.0) != 0
    assert not Path(f"/proc/{sleeping[0]}").exists()


def is_asleep(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"sleep\0")
    except OSError:  # the process has ended, before the test looked or meanwhile
        return False


def test_a_large_task_is_shared_out_and_no_row_left_out(tasks: list[Task], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernwright.judge.checks.parallel_verification.MOST_ROWS", 2)
    ids = [row.id for row in tasks[0].select("all")]
    jobs = VerificationJob.shared_out("eager", tasks[0], "all", "cpu")
    parts = [job.rows.split(",") for job in jobs]
    assert sorted(row for part in parts for row in part) == sorted(ids)
    assert len(parts) == -(-len(ids) // 2) > 1
    assert {len(part) for part in parts} <= {1, 2}
    assert len({job.label for job in jobs}) == len(jobs)
    monkeypatch.setattr("kernwright.judge.checks.parallel_verification.MOST_SHARED", len(ids) - 1)
    (whole,) = VerificationJob.shared_out("eager", tasks[0], "all", "cpu")
    assert sorted(whole.rows.split(",")) == sorted(ids), "a grid has larger parts"


def test_an_interrupt_leaves_no_process_behind(tasks: list[Task], private_tmp: Path) -> None:
    folders = [word for task in tasks for word in ("--task", str(task.folder))]
    command = [sys.executable, "-m", "kernwright", "baseline", "verify", "hangs", *folders, "--processes", "2"]
    parent = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    end = time.monotonic() + 60.0
    while len(verifiers := children_of(parent.pid)) < 2 and time.monotonic() < end:
        time.sleep(0.1)
    assert len(verifiers) == 2
    time.sleep(1.0)
    parent.send_signal(signal.SIGINT)
    assert parent.wait(60.0) != 0
    assert not [pid for pid in verifiers if Path(f"/proc/{pid}").exists()]


def children_of(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # the thread has ended meanwhile
            found += [int(word) for word in task.read_text().split()]
    return found
