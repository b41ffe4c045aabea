"""Every kind of damage is found, and the damaged record is named."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernwright.core.errors import LedgerError
from kernwright.ledger.blobs import BlobStore, blob_reference
from kernwright.ledger.ledger import Ledger
from kernwright.ledger.record import Record, parse_record
from kernwright.ledger.verify import Damage, Problem, examine, verify


class Scene(NamedTuple):
    """A ledger of two runs with five records each. Record 3 of the first run refers to a blob."""

    ledger: Ledger
    run: str
    other: str
    blob: str

    @property
    def path(self) -> Path:
        return self.ledger.run_path(self.run)

    def lines(self) -> list[bytes]:
        return self.path.read_bytes().splitlines(keepends=True)

    def head_lines(self) -> list[bytes]:
        return self.ledger.heads_path.read_bytes().splitlines(keepends=True)


def write_scene(root: Path) -> Scene:
    ledger = Ledger(root)
    with ledger.open_run({"host": "one"}) as writer, ledger.open_run({"host": "two"}) as other:
        samples = writer.blob(b"raw samples")
        for number in range(1, 5):
            body = {"number": number, "ratio": 1.0625, "verdict": "slower"}
            writer.append("verdict", body | ({"samples": [blob_reference(samples)]} if number == 3 else {}))
            other.append("verdict", body)
    return Scene(ledger, writer.run, other.run, samples)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return write_scene(tmp_path)


def reseal(line: bytes, **changes: object) -> bytes:
    """Change a record and give it a correct hash again, as a careful forger does."""
    draft = parse_record(line.rstrip(b"\n")).model_copy(update=changes)
    return draft.model_copy(update={"hash": draft.content_hash()}).line()


def rewrite(path: Path, lines: list[bytes]) -> None:
    path.write_bytes(b"".join(lines))


def edit_a_value(s: Scene) -> None:
    lines = s.lines()
    lines[2] = lines[2].replace(b"slower", b"faster")
    rewrite(s.path, lines)


def edit_and_reseal(s: Scene) -> None:
    lines = s.lines()
    lines[2] = reseal(lines[2], body={"verdict": "faster"})
    rewrite(s.path, lines)


def edit_and_reseal_the_last(s: Scene) -> None:
    lines = s.lines()
    lines[4] = reseal(lines[4], body={"verdict": "faster"})
    rewrite(s.path, lines)


def reseal_the_whole_run(s: Scene) -> None:
    lines = s.lines()
    lines[2] = reseal(lines[2], body={"verdict": "faster"})
    for at in (3, 4):
        lines[at] = reseal(lines[at], prev=json.loads(lines[at - 1])["hash"])
    rewrite(s.path, lines)


def respell_the_json(s: Scene) -> None:
    lines = s.lines()
    lines[2] = lines[2].replace(b'"ratio":1.0625', b'"ratio": 1.0625')
    rewrite(s.path, lines)


def swap_two(s: Scene) -> None:
    lines = s.lines()
    lines[2], lines[3] = lines[3], lines[2]
    rewrite(s.path, lines)


def delete_a_middle_one(s: Scene) -> None:
    lines = s.lines()
    del lines[2]
    rewrite(s.path, lines)


def delete_the_first(s: Scene) -> None:
    rewrite(s.path, s.lines()[1:])


def cut_the_end(s: Scene) -> None:
    rewrite(s.path, s.lines()[:3])


def cut_inside_the_last(s: Scene) -> None:
    s.path.write_bytes(s.path.read_bytes()[:-30])


def empty_the_file(s: Scene) -> None:
    s.path.write_bytes(b"")


def insert_another_runs_record(s: Scene) -> None:
    lines = s.lines()
    lines.insert(2, s.ledger.run_path(s.other).read_bytes().splitlines(keepends=True)[2])
    rewrite(s.path, lines)


def begin_with_another_runs_chain(s: Scene) -> None:
    """Another run's first record, relabelled and with a new hash, but still with that run's genesis."""
    lines = s.lines()
    theirs = s.ledger.run_path(s.other).read_bytes().splitlines(keepends=True)[0]
    lines[0] = reseal(theirs, run=s.run)
    rewrite(s.path, lines)


def insert_a_forged_record(s: Scene) -> None:
    lines = s.lines()
    lines.insert(3, reseal(lines[2], body={"verdict": "faster"}))
    rewrite(s.path, lines)


def append_a_forged_record(s: Scene) -> None:
    """Two records more than the heads list. One alone would look like a crash before its head was written."""
    last = parse_record(s.lines()[-1].rstrip(b"\n"))
    with s.path.open("ab") as stream:
        for _ in range(2):
            last = Record.sealed(s.run, last.seq + 1, "verdict", last.hash, {"verdict": "faster"})
            stream.write(last.line())


def repeat_one(s: Scene) -> None:
    lines = s.lines()
    lines.insert(3, lines[2])
    rewrite(s.path, lines)


def spoil_a_line(s: Scene) -> None:
    lines = s.lines()
    lines[2] = b"\xff\x00 not json\n"
    rewrite(s.path, lines)


def spoil_with_deep_nesting(s: Scene) -> None:
    lines = s.lines()
    lines[2] = b"[" * 200_000 + b"\n"
    rewrite(s.path, lines)


def blank_a_line(s: Scene) -> None:
    lines = s.lines()
    lines[2] = b"\n"
    rewrite(s.path, lines)


def remove_the_run(s: Scene) -> None:
    s.path.unlink()


def replace_the_run_by_a_folder(s: Scene) -> None:
    s.path.unlink()
    s.path.mkdir()


def rename_a_run(s: Scene) -> None:
    shutil.copy(s.path, s.path.with_name("20260101T000000000000Z-0badf00d.jsonl"))


def edit_a_head(s: Scene) -> None:
    lines = s.head_lines()
    lines[4] = lines[4].replace(b'"record":"', b'"record":"0')
    rewrite(s.ledger.heads_path, lines)


def edit_and_reseal_a_head(s: Scene) -> None:
    lines = s.head_lines()
    body = {"run": s.run, "seq": 1, "record": "0" * 64}
    lines[2] = reseal(lines[2], body=body)
    rewrite(s.ledger.heads_path, lines)


def swap_heads(s: Scene) -> None:
    lines = s.head_lines()
    lines[4], lines[5] = lines[5], lines[4]
    rewrite(s.ledger.heads_path, lines)


def delete_a_middle_head(s: Scene) -> None:
    lines = s.head_lines()
    del lines[4]
    rewrite(s.ledger.heads_path, lines)


def cut_the_heads(s: Scene) -> None:
    rewrite(s.ledger.heads_path, s.head_lines()[:5])


def remove_the_heads(s: Scene) -> None:
    s.ledger.heads_path.unlink()


def put_a_strange_head(s: Scene) -> None:
    last = parse_record(s.head_lines()[-1].rstrip(b"\n"))
    with s.ledger.heads_path.open("ab") as stream:
        stream.write(Record.sealed("heads", last.seq + 1, "head", last.hash, {"run": 7}).line())


def turn_a_run_back(s: Scene) -> None:
    last = parse_record(s.head_lines()[-1].rstrip(b"\n"))
    body = json.loads(s.head_lines()[0])["body"]
    with s.ledger.heads_path.open("ab") as stream:
        stream.write(Record.sealed("heads", last.seq + 1, "head", last.hash, body).line())


def alter_a_blob(s: Scene) -> None:
    BlobStore(s.ledger.root / "blobs").path(s.blob).write_bytes(b"raw Samples")


def remove_a_blob(s: Scene) -> None:
    BlobStore(s.ledger.root / "blobs").path(s.blob).unlink()


# damage, its name, the file and line where it shows, and the record that is named
CASES: list[tuple[Callable[[Scene], None], Damage, str, int | None]] = [
    (edit_a_value, Damage.EDITED, "run:3", 2),
    (edit_and_reseal, Damage.REPLACED, "run:3", 2),
    (edit_and_reseal, Damage.REPLACED, "run:4", 3),
    (edit_and_reseal_the_last, Damage.REPLACED, "run:5", 4),
    (reseal_the_whole_run, Damage.REPLACED, "run:3", 2),
    (respell_the_json, Damage.EDITED, "run:3", 2),
    (swap_two, Damage.REORDERED, "run:4", 2),
    (delete_a_middle_one, Damage.MISSING, "run:3", 2),
    (delete_the_first, Damage.MISSING, "run:1", 0),
    (cut_the_end, Damage.TRUNCATED, "run:4", 3),
    (cut_inside_the_last, Damage.TRUNCATED, "run:5", 4),
    (empty_the_file, Damage.TRUNCATED, "run:1", 0),
    (insert_another_runs_record, Damage.FOREIGN, "run:3", 2),
    (begin_with_another_runs_chain, Damage.FOREIGN, "run:1", 0),
    (insert_a_forged_record, Damage.FOREIGN, "run:4", 2),
    (append_a_forged_record, Damage.HEADS_TRUNCATED, "heads.jsonl", 5),
    (repeat_one, Damage.DUPLICATE, "run:4", 2),
    (spoil_a_line, Damage.UNREADABLE, "run:3", 2),
    (spoil_with_deep_nesting, Damage.UNREADABLE, "run:3", 2),
    (blank_a_line, Damage.UNREADABLE, "run:3", 2),
    (remove_the_run, Damage.MISSING_RUN, "heads.jsonl:9", None),
    (replace_the_run_by_a_folder, Damage.UNREADABLE, "run:1", None),
    (rename_a_run, Damage.FOREIGN, "runs/20260101T000000000000Z-0badf00d.jsonl:1", 0),
    (edit_a_head, Damage.EDITED, "heads.jsonl:5", 4),
    (edit_and_reseal_a_head, Damage.REPLACED, "heads.jsonl:4", 3),
    (swap_heads, Damage.REORDERED, "heads.jsonl:6", 4),
    (delete_a_middle_head, Damage.MISSING, "heads.jsonl:5", 4),
    (cut_the_heads, Damage.HEADS_TRUNCATED, "heads.jsonl", 3),
    (remove_the_heads, Damage.HEADS_TRUNCATED, "heads.jsonl", 0),
    (put_a_strange_head, Damage.UNREADABLE, "heads.jsonl:11", 10),
    (turn_a_run_back, Damage.REPLACED, "heads.jsonl:11", 10),
    (alter_a_blob, Damage.BLOB_ALTERED, "run:4", 3),
    (remove_a_blob, Damage.BLOB_MISSING, "run:4", 3),
]


@pytest.mark.parametrize(("damage", "kind", "where", "seq"), CASES, ids=lambda value: getattr(value, "__name__", None))
def test_damage_is_found_and_named(
    scene: Scene, damage: Callable[[Scene], None], kind: Damage, where: str, seq: int | None
) -> None:
    assert verify(scene.ledger.root) == []
    damage(scene)
    problems = verify(scene.ledger.root)
    where = where.replace("run:", f"runs/{scene.run}.jsonl:") if where.startswith("run:") else where
    found = [(problem.kind, problem.where, problem.seq) for problem in problems]
    assert (kind, where, seq) in found, "\n".join(map(str, problems))


ONE_CAUSE_ONE_PROBLEM = [
    edit_a_value,
    respell_the_json,
    swap_two,
    delete_a_middle_one,
    cut_the_end,
    insert_another_runs_record,
    repeat_one,
    spoil_a_line,
    remove_the_run,
    alter_a_blob,
]


@pytest.mark.parametrize("damage", ONE_CAUSE_ONE_PROBLEM)
def test_simple_damage_is_one_problem_in_the_right_run(scene: Scene, damage: Callable[[Scene], None]) -> None:
    """There is no flood of consequences, and the sound run is not blamed."""
    damage(scene)
    assert [problem.run for problem in verify(scene.ledger.root)] == [scene.run]


def test_a_problem_reads_as_one_line(scene: Scene) -> None:
    edit_a_value(scene)
    (problem,) = verify(scene.ledger.root)
    assert str(problem) == (
        f"runs/{scene.run}.jsonl:3: edited: run {scene.run}, record 2: its content does not match its hash"
    )
    assert str(Problem("x", "\x1b[2J\n", None, Damage.MISSING_RUN, "y")) == "x: missing run: run ?[2J?: y"


def test_traces_of_a_crash_are_a_note_and_no_problem(scene: Scene) -> None:
    with scene.path.open("ab") as stream:
        stream.write(b'{"body":')
    with scene.ledger.heads_path.open("ab") as stream:
        stream.write(b'{"body":')
    (scene.path.parent / "20260101T000000000000Z-00000000.jsonl").write_bytes(b"")
    result = examine(scene.ledger.root)
    assert result.problems == []
    assert len(result.notes) == 3
    assert {run: summary.records for run, summary in result.runs.items()} == {scene.run: 5, scene.other: 5}


def test_one_record_ahead_of_its_head_is_what_a_crash_leaves(scene: Scene) -> None:
    rewrite(scene.ledger.heads_path, scene.head_lines()[:-1])
    assert verify(scene.ledger.root) == []


def test_no_ledger_is_not_a_sound_ledger(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="no ledger at"):
        verify(tmp_path / "typo")


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return write_scene(tmp_path_factory.mktemp("pristine"))


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(position=st.integers(min_value=0), flip=st.integers(min_value=1, max_value=255), in_heads=st.booleans())
def test_any_changed_byte_is_detected(pristine: Scene, position: int, flip: int, in_heads: bool) -> None:
    path = pristine.ledger.heads_path if in_heads else pristine.path
    sound = path.read_bytes()
    # The final newline of the heads file is the one byte whose loss looks exactly like a crash.
    at = position % (len(sound) - 1 if in_heads else len(sound))
    try:
        path.write_bytes(sound[:at] + bytes([sound[at] ^ flip]) + sound[at + 1 :])
        assert verify(pristine.ledger.root)
    finally:
        path.write_bytes(sound)
    assert verify(pristine.ledger.root) == []
