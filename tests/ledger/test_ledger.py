"""Records, chains, appending and reading, in one process."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from kernwright.core.errors import KernwrightError, LedgerError
from kernwright.ledger.blobs import blob_reference
from kernwright.ledger.heads import Heads
from kernwright.ledger.ledger import Ledger, RunWriter, default_ledger_root
from kernwright.ledger.record import Record, genesis, is_run_id
from kernwright.ledger.verify import verify

BODY = {
    "task": "norm",
    "ratio": 1.25,
    "big": 2**80,
    "text": "µs “quoted”\n\t\x00 \u2028",
    "deep": [{"a": [None, True]}],
}


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "some" / "ledger")


def test_a_line_is_the_canonical_spelling_and_the_hash_covers_all_of_it_but_itself() -> None:
    """Ledgers that were written before must remain readable, so the spelling never changes."""
    record = Record.sealed("20260101T000000000000Z-00000000", 3, "verdict", "0" * 64, BODY | {"hash": "x", "body": {}})
    plain = json.loads(record.line())
    assert (
        record.line() == json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
    )
    rest = {name: value for name, value in plain.items() if name != "hash"}
    spelled = json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert plain["hash"] == hashlib.sha256(spelled.encode()).hexdigest()
    assert plain == record.model_dump() and record.is_as_written(record.line().rstrip(b"\n"))


def test_what_is_recorded_is_read(ledger: Ledger) -> None:
    with ledger.open_run({"host": "a"}) as writer:
        samples = writer.blob(b"raw")
        verdict = writer.append("verdict", {**BODY, "samples": blob_reference(samples)})
    first, second = ledger.records(writer.run)
    assert (first.kind, first.seq, first.body, first.prev) == ("run", 0, {"host": "a"}, genesis(writer.run))
    assert (second, second.prev, second.seq) == (verdict, first.hash, 1)
    assert second.body == {**BODY, "samples": blob_reference(samples)}
    assert ledger.blobs.read(samples) == b"raw"
    assert ledger.runs() == [writer.run]
    assert verify(ledger.root) == []


def test_the_hash_is_what_the_format_says(ledger: Ledger) -> None:
    """The hash is recomputed from the bytes on disk with json and hashlib only, so another program can check a
    ledger."""
    with ledger.open_run(BODY) as writer:
        pass
    line = ledger.run_path(writer.run).read_bytes()
    fields = json.loads(line)
    claimed = fields.pop("hash")
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    assert hashlib.sha256(text.encode("utf-8")).hexdigest() == claimed
    assert line.endswith(b"\n") and line.count(b"\n") == 1


def test_each_record_has_a_head_that_names_it(ledger: Ledger) -> None:
    with ledger.open_run({}) as one, ledger.open_run({}) as two:
        written = [one.append("a", {}), two.append("b", {}), one.append("c", {})]
    heads = ledger.heads()
    named = [(head.body["run"], head.body["seq"], head.body["record"]) for head in heads]
    assert named[2:] == [(record.run, record.seq, record.hash) for record in written]
    assert len(named) == 5


def test_runs_come_in_the_order_they_began(ledger: Ledger) -> None:
    runs = []
    for number in range(5):
        with ledger.open_run({"n": number}) as writer:
            runs.append(writer.run)
    assert ledger.runs() == runs
    assert [record.body["n"] for record in ledger.all_records()] == [0, 1, 2, 3, 4]
    assert all(is_run_id(run) for run in runs)


def test_a_record_cannot_be_changed_or_widened(ledger: Ledger) -> None:
    record = ledger.open_run({}).append("a", {})
    with pytest.raises(ValidationError):
        record.kind = "b"  # type: ignore[misc]
    with pytest.raises(ValidationError):
        Record.model_validate({**record.model_dump(), "extra": 1})


def test_changing_the_body_afterwards_does_not_change_the_record(ledger: Ledger) -> None:
    body: dict[str, Any] = {"rows": [1]}
    writer = ledger.open_run({})
    record = writer.append("a", body)
    body["rows"].append(2)
    assert record.body == {"rows": [1]} == ledger.records(writer.run)[1].body


endless: list[Any] = []
endless.append(endless)


@pytest.mark.parametrize(
    "body",
    [{"x": float("nan")}, {"x": float("inf")}, {"x": object()}, {"x": b"bytes"}, {"x": "\ud800"}, {"x": endless}],
    ids=["nan", "inf", "object", "bytes", "surrogate", "cycle"],
)
def test_a_body_that_is_not_json_is_refused_and_nothing_is_lost(ledger: Ledger, body: dict[str, Any]) -> None:
    with ledger.open_run({}) as writer:
        with pytest.raises(LedgerError, match="cannot be written as JSON") as caught:
            writer.append("a", body)
        assert caught.value.remedy
        writer.append("a", {"x": 1})
    assert [record.seq for record in ledger.records(writer.run)] == [0, 1]
    assert verify(ledger.root) == []


def test_a_refused_first_record_leaves_no_run(ledger: Ledger) -> None:
    with pytest.raises(LedgerError):
        ledger.open_run({"x": float("nan")})
    assert list((ledger.root / "runs").iterdir()) == []


def test_threads_share_a_writer(ledger: Ledger) -> None:
    with ledger.open_run({}) as writer:
        threads = [threading.Thread(target=lambda: [writer.append("a", {}) for _ in range(10)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(ledger.records(writer.run)) == 41
    assert verify(ledger.root) == []


def test_a_closed_writer_and_another_process_are_refused(ledger: Ledger) -> None:
    writer = ledger.open_run({})
    child = os.fork()
    if child == 0:
        try:
            writer.append("a", {})
        except LedgerError as error:
            os._exit(7 if "belongs to the process" in error.cause else 8)
        os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    writer.close()
    with pytest.raises(LedgerError, match="is closed"):
        writer.append("a", {})


def test_a_damaged_run_cannot_be_read_as_evidence(ledger: Ledger) -> None:
    with ledger.open_run({}) as writer:
        writer.append("verdict", {"verdict": "slower"})
    path = ledger.run_path(writer.run)
    path.write_bytes(path.read_bytes().replace(b"slower", b"faster"))
    with pytest.raises(LedgerError, match="record 1 differs") as caught:
        ledger.records(writer.run)
    assert "ledger verify" in caught.value.remedy


@pytest.mark.parametrize("run", ["nonsense", "../heads", "20260101T000000000000Z-00000000"])
def test_an_unknown_run_is_named(ledger: Ledger, run: str) -> None:
    with pytest.raises(LedgerError, match=run):
        ledger.records(run)


def test_an_unfinished_last_line_is_no_record(ledger: Ledger) -> None:
    with ledger.open_run({}) as writer:
        pass
    with ledger.run_path(writer.run).open("ab") as stream:
        stream.write(b'{"body":{},"hash"')
    assert len(ledger.records(writer.run)) == 1
    (ledger.root / "runs" / "20260101T000000000000Z-00000000.jsonl").write_bytes(b'{"bo')
    assert ledger.runs() == [writer.run]


def test_the_next_writer_removes_an_unfinished_head(ledger: Ledger) -> None:
    ledger.open_run({}).close()
    sound = ledger.heads_path.read_bytes()
    ledger.heads_path.write_bytes(sound + b'{"body":{"re' * 20_000)
    ledger.open_run({}).close()
    assert ledger.heads_path.read_bytes().startswith(sound)
    assert len(ledger.heads()) == 2
    assert verify(ledger.root) == []


def test_nothing_but_an_unfinished_head(ledger: Ledger) -> None:
    ledger.root.mkdir(parents=True)
    ledger.heads_path.write_bytes(b'{"body":')
    ledger.open_run({}).close()
    assert len(ledger.heads()) == 1


def test_a_damaged_last_head_stops_writing_and_rolls_the_record_back(ledger: Ledger) -> None:
    with ledger.open_run({}) as writer:
        before = ledger.run_path(writer.run).read_bytes()
        sound = ledger.heads_path.read_bytes()
        ledger.heads_path.write_bytes(sound.replace(b'"seq":0', b'"seq":1', 1))
        with pytest.raises(LedgerError, match="last head"):
            writer.append("a", {})
        assert ledger.run_path(writer.run).read_bytes() == before
        ledger.heads_path.write_bytes(sound)
        writer.append("a", {})
    assert verify(ledger.root) == []


@pytest.mark.parametrize("when", ["before the head", "after the head"])
def test_an_interrupt_inside_an_append(ledger: Ledger, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    """If the head is missing, the record is undone; otherwise it counts. In both cases the chain continues."""
    real = Heads.append

    def interrupted(heads: Heads, record: Record) -> None:
        if when == "after the head":
            real(heads, record)
        raise KeyboardInterrupt

    with ledger.open_run({}) as writer:
        monkeypatch.setattr(Heads, "append", interrupted)
        with pytest.raises(KeyboardInterrupt):
            writer.append("a", {"n": 1})
        monkeypatch.setattr(Heads, "append", real)
        writer.append("stopped", {"n": 2})
    kinds = [record.kind for record in ledger.records(writer.run)]
    assert kinds == (["run", "stopped"] if when == "before the head" else ["run", "a", "stopped"])
    assert verify(ledger.root) == []


def unusable_folders() -> list[str]:
    """Places to which even root cannot write, so that these tests mean the same for every user."""
    return ["below a file", "a file", "/proc/kernwright", "runs is a file", "heads is a folder", "lock is a folder"]


@pytest.mark.parametrize("place", unusable_folders())
def test_an_unusable_folder_is_one_message_with_a_remedy(tmp_path: Path, place: str) -> None:
    root = tmp_path / "ledger"
    if place == "below a file":
        root.write_text("")
        root = root / "ledger"
    elif place == "a file":
        root.write_text("")
    elif place.startswith("/"):
        root = Path(place)
    else:
        root.mkdir()
        names = {"runs is a file": "runs", "heads is a folder": "heads.jsonl", "lock is a folder": ".lock"}
        target = root / names[place]
        target.write_text("") if place == "runs is a file" else target.mkdir()
    with pytest.raises(LedgerError) as caught:
        Ledger(root).open_run({})
    assert isinstance(caught.value, KernwrightError)
    assert str(root) in caught.value.cause and "\n" not in caught.value.cause
    assert "--ledger" in caught.value.remedy


def test_a_read_only_folder(ledger: Ledger) -> None:
    """Runs in a child process that gives up root, because root may write anywhere."""
    ledger.open_run({}).close()
    for folder in (ledger.root, ledger.root / "runs"):
        folder.chmod(0o555)
    child = os.fork()
    if child == 0:
        if os.geteuid() == 0:
            os.setuid(65534)
        refusals = 0
        for attempt in (lambda: ledger.open_run({}), lambda: ledger.write_blob(b"samples")):
            try:
                attempt()
            except LedgerError as error:
                refusals += "Permission denied" in error.cause and "--ledger" in error.remedy
        os._exit(refusals)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
    ledger.root.chmod(0o755)
    (ledger.root / "runs").chmod(0o755)
    assert verify(ledger.root) == []


def test_where_the_ledger_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KERNWRIGHT_LEDGER", raising=False)
    assert default_ledger_root() == tmp_path / ".kernwright" / "ledger"
    monkeypatch.setenv("KERNWRIGHT_LEDGER", str(tmp_path / "elsewhere"))
    assert default_ledger_root() == Ledger().root == tmp_path / "elsewhere"
    assert Ledger().runs() == []


def test_a_writer_is_the_only_one_of_its_run(ledger: Ledger) -> None:
    first, second = RunWriter(ledger, {}), RunWriter(ledger, {})
    assert first.run != second.run
