"""Many concurrent writers, killed writers and full disks: no acknowledged record is ever lost."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from kernwright.ledger.ledger import Ledger
from kernwright.ledger.verify import examine, verify

WRITER = """
import sys
from kernwright.ledger.ledger import Ledger
root, count = sys.argv[1], int(sys.argv[2])
with Ledger(root).open_run({"writer": True}) as writer:
    for number in range(count):
        record = writer.append("step", {"number": number, "padding": "x" * (number * 37 % 5000)})
        print(record.run, record.seq, record.hash, flush=True)
"""

FULL_DISK = """
import resource, sys
from kernwright.ledger.ledger import Ledger
from kernwright.core.errors import LedgerError
root, limit, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
writer = Ledger(root).open_run({})
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
try:
    writer.append("big", {"padding": "x" * size})
except LedgerError as error:
    print("refused:", error.cause)
    print("remedy:", error.remedy)
    print("heads are whole:", Ledger(root).heads_path.read_bytes().endswith(b"}\\n"))
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
writer.append("after", {})
print(writer.run)
"""


def start(script: str, *arguments: object) -> subprocess.Popen[str]:
    source = Path(__file__).parents[2] / "src"
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(source)})


def test_four_processes_write_at_once(tmp_path: Path) -> None:
    writers = [start(WRITER, tmp_path, 50) for _ in range(4)]
    acknowledged = {tuple(line.split()) for writer in writers for line in writer.communicate()[0].splitlines()}
    assert [writer.returncode for writer in writers] == [0] * 4
    assert len(acknowledged) == 200
    recorded = {(r.run, str(r.seq), r.hash) for r in Ledger(tmp_path).all_records()}
    assert acknowledged <= recorded and len(recorded) == 204
    assert verify(tmp_path) == []
    assert len(Ledger(tmp_path).heads_path.read_bytes().splitlines()) == 204


def test_a_killed_writer_leaves_all_that_it_acknowledged(tmp_path: Path) -> None:
    chance = random.Random(20260)
    acknowledged: set[tuple[str, ...]] = set()
    for _ in range(15):
        writer = start(WRITER, tmp_path, 1_000_000)
        assert writer.stdout is not None
        for _ in range(chance.randint(1, 3)):  # after the first line it is inside the loop, however slow the disk is
            acknowledged.add(tuple(writer.stdout.readline().split()))
        time.sleep(chance.uniform(0, 0.03))
        writer.send_signal(signal.SIGKILL)
        lines = writer.communicate()[0].splitlines(keepends=True)
        acknowledged |= {tuple(line.split()) for line in lines if line.endswith("\n")}
        assert verify(tmp_path) == []
    recorded = {(r.run, str(r.seq), r.hash) for r in Ledger(tmp_path).all_records()}
    assert acknowledged <= recorded
    assert len(acknowledged) > 15
    with Ledger(tmp_path).open_run({}) as writer_after:
        writer_after.append("fine", {})
    assert verify(tmp_path) == []


@pytest.mark.parametrize("kept", [0, 1, 100, -1], ids=lambda kept: f"keep {kept} bytes")
@pytest.mark.parametrize("file", ["run", "heads"])
def test_each_way_that_a_kill_can_cut_the_last_write(tmp_path: Path, file: str, kept: int) -> None:
    """A kill seldom hits a write, so this test makes each possible state of an interrupted write by hand."""
    ledger = Ledger(tmp_path)
    with ledger.open_run({}) as writer:
        for number in range(3):
            writer.append("step", {"number": number})
    run_path = ledger.run_path(writer.run)

    def cut(path: Path) -> None:
        start_of_last = path.read_bytes()[:-1].rfind(b"\n") + 1
        whole = path.read_bytes()
        path.write_bytes(whole[:start_of_last] + whole[start_of_last:][:kept])

    if file == "run":  # a truncated record has no head yet
        heads = ledger.heads_path.read_bytes()
        ledger.heads_path.write_bytes(heads[: heads[:-1].rfind(b"\n") + 1])
    cut(run_path if file == "run" else ledger.heads_path)
    result = examine(tmp_path)
    assert result.problems == []
    assert len(result.notes) == (0 if kept == 0 else 1)
    assert len(ledger.records(writer.run)) == (3 if file == "run" else 4)
    ledger.open_run({}).close()
    assert verify(tmp_path) == []


def test_a_full_disk_under_the_run_file(tmp_path: Path) -> None:
    with Ledger(tmp_path).open_run({}) as earlier:
        earlier.append("kept", {})
    process = start(FULL_DISK, tmp_path, 4_000, 20_000)
    output = process.communicate()[0]
    assert process.returncode == 0
    assert "refused: cannot append to" in output and "File too large" in output
    assert "remedy: free some space" in output
    run = output.split()[-1]
    assert [record.kind for record in Ledger(tmp_path).records(run)] == ["run", "after"]
    assert len(Ledger(tmp_path).records(earlier.run)) == 2
    assert examine(tmp_path).notes == []
    assert verify(tmp_path) == []


def test_a_full_disk_under_the_heads_takes_the_record_back_too(tmp_path: Path) -> None:
    with Ledger(tmp_path).open_run({}) as earlier:
        for _ in range(20):
            earlier.append("kept", {})
    heads = Ledger(tmp_path).heads_path.read_bytes()
    process = start(FULL_DISK, tmp_path, len(heads) + len(heads) // 20 + 100, 0)  # room for one head and a little more
    output = process.communicate()[0]
    assert process.returncode == 0
    assert "refused: cannot append to" in output
    assert "heads are whole: True" in output  # immediately, not only when the next writer repairs the file
    run = output.split()[-1]
    assert [record.kind for record in Ledger(tmp_path).records(run)] == ["run", "after"]
    assert Ledger(tmp_path).heads_path.read_bytes().startswith(heads)
    assert verify(tmp_path) == []


def test_verify_waits_for_a_head_that_is_being_written(tmp_path: Path) -> None:
    """Without the lock it could see a new head next to an older view of its run, and report truncation."""
    ledger = Ledger(tmp_path)
    ledger.open_run({}).close()
    checker = threading.Thread(target=verify, args=(tmp_path,))
    with ledger.locked():
        checker.start()
        checker.join(0.3)
        assert checker.is_alive()
    checker.join(60)
    assert not checker.is_alive()


def test_verify_beside_a_busy_writer_raises_no_false_alarm(tmp_path: Path) -> None:
    Ledger(tmp_path).open_run({}).close()
    writer = start(WRITER, tmp_path, 300)
    rounds = 0
    while writer.poll() is None:
        assert verify(tmp_path) == []
        rounds += 1
    writer.communicate()
    assert rounds > 3
    assert verify(tmp_path) == []
