"""Tasks: the required files, the content of a digest, and messages for bad files."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernwright.core.errors import BadFile, KernwrightError
from kernwright.tasks.catalog import find_task
from kernwright.tasks.task import Task, load_task, tasks_with_rows

Rows = list[dict[str, Any]]


@pytest.fixture
def load(tmp_path: Path, write_task: Callable[..., Path]) -> Callable[..., Task]:
    number = iter(range(99))
    return lambda **parts: load_task(write_task(tmp_path / f"t{next(number)}", **parts))


def changed(rows: Rows, **fields: Any) -> Rows:
    return [rows[0] | fields, *rows[1:]]


# The content of a digest.


def test_digest_is_stable_across_loads_and_key_order(
    load: Callable[..., Task], tiny_row_dicts: Callable[[], Rows]
) -> None:
    first = load()
    assert load().digest == first.digest
    reordered = [
        dict(reversed(row.items()))
        | {"axes": dict(reversed(row["axes"].items())), "inputs": dict(reversed(row["inputs"].items()))}
        for row in tiny_row_dicts()
    ]
    assert load(rows=reordered).digest == first.digest


def test_words_do_not_count(
    load: Callable[..., Task], task_texts: dict[str, str], tiny_row_dicts: Callable[[], Rows]
) -> None:
    first = load().digest
    toml = task_texts["toml"].replace("Ops that take microseconds", "Another title").replace("made up", "invented")
    assert toml != task_texts["toml"]
    assert load(toml=toml).digest == first
    rows = changed(tiny_row_dicts(), models=["some-model"], sized_from="another_row")
    assert load(rows=rows).digest == first
    assert load(ops="# a comment\n" + task_texts["ops"]).digest == first


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("atol = 1e-5", "atol = 2e-5"),
        ("rtol = 0.05", "rtol = 0.06"),
        ("block_ms = 1.0", "block_ms = 2.0"),
        ("quads_per_round = 7", "quads_per_round = 8"),
        ('neighbours = ["S"]', 'neighbours = ["S", "D"]'),
        ('name = "tiny"', 'name = "small"'),
    ],
)
def test_tolerance_policy_and_name_count(
    load: Callable[..., Task], task_texts: dict[str, str], old: str, new: str
) -> None:
    assert old in task_texts["toml"]
    assert load(toml=task_texts["toml"].replace(old, new)).digest != load().digest


@pytest.mark.parametrize(
    "fields", [{"id": "other"}, {"scalars": {"alpha": 5.0}}, {"set": "grid"}, {"axes": {"S": 3, "D": 128}}]
)
def test_rows_count(
    load: Callable[..., Task], tiny_row_dicts: Callable[[], Rows], fields: dict[str, Any], make_row: Any
) -> None:
    rows = tiny_row_dicts()
    if "axes" in fields:
        fields = fields | {
            "bytes_min": make_row("x", "axpy", {"x": [3, 128], "w": [128]}, {"y": [3, 128]})["bytes_min"]
        }
    assert load(rows=changed(rows, **fields)).digest != load().digest
    assert load(rows=rows[1:]).digest != load().digest


def test_op_text_counts(load: Callable[..., Task], task_texts: dict[str, str]) -> None:
    ops = task_texts["ops"].replace("alpha * x + w", "w + alpha * x")
    assert ops != task_texts["ops"]
    assert load(ops=ops).digest != load().digest


# Bad files


def refused(load: Callable[..., Task], **parts: Any) -> str:
    with pytest.raises(BadFile) as caught:
        load(**parts)
    assert caught.value.remedy
    return str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ('title = "Ops that take microseconds"\n', "", "title"),
        ("[timing]", 'speed = 3\n[timing]\ncolour = "red"', "tolerance.speed"),
        ('name = "tiny"', 'name = "tiny"\nsped = 1', "sped"),
        ('name = "tiny"', "name = 3", "name"),
        ('name = "tiny"', 'name = "Tiny task"', "name"),
        ("block_ms = 1.0", 'block_ms = "long"', "timing.block_ms"),
        ("block_ms = 1.0", "blok_ms = 1.0", "timing.blok_ms"),
        ("atol = 1e-5, rtol = 1e-5", "atol = 1e-5", "tolerance.fp32.rtol"),
        ("atol = 1e-5", "atol = -1.0", "tolerance.fp32.atol"),
        ("atol = 1e-5", "atol = inf", "tolerance.fp32.atol"),
        ("fp32 =", "float32 =", "tolerance.float32"),
        ('neighbours = ["S"]', 'neighbours = "S"', "neighbours"),
    ],
)
def test_a_bad_task_file_is_named_with_field_and_remedy(
    load: Callable[..., Task], task_texts: dict[str, str], old: str, new: str, field: str
) -> None:
    assert old in task_texts["toml"]
    message = refused(load, toml=task_texts["toml"].replace(old, new, 1))
    assert re.search(rf"task\.toml(:\d+)?: {re.escape(field)}", message)


def test_an_unknown_field_lists_the_known_ones(load: Callable[..., Task], task_texts: dict[str, str]) -> None:
    message = refused(load, toml="colour = 1\n" + task_texts["toml"])
    assert "definitions" in message and "tolerance" in message


@pytest.mark.parametrize("toml", ["name = ", "= 3", "name = 'a'\nname = 'b'", "[tolerance", "\x00"])
def test_bad_toml_names_the_file(load: Callable[..., Task], toml: str) -> None:
    assert "task.toml: is not valid TOML" in refused(load, toml=toml)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"op": "axpby"}, "op: axpby is not defined"),
        ({"bytes_min": 17}, "bytes_min: is 17"),
        ({"bytes_min": "many"}, "bytes_min"),
        ({"colour": "red"}, "colour"),
        ({"inputs": {"x": {"shape": [2], "dtype": "fp32"}}}, "inputs: lacks ['w']"),
        ({"outputs": {"z": {"shape": [2], "dtype": "fp32"}}}, "outputs: are ['z']"),
        ({"scalars": {"beta": 1.0}}, "scalars: axpy takes no ['beta']"),
        ({"inputs": {n: {"shape": [2], "dtype": "fp32"} for n in "xwv"}}, "inputs: axpy takes no ['v']"),
        ({"outputs": {"y": {"shape": [2], "dtype": "fp64"}}}, "y: no tolerance for fp64"),
        ({"outputs": {"y": {"shape": [2], "dtype": "fp31"}}}, "outputs.y.dtype"),
        ({"inputs": {"x": {"shape": ["Q"], "dtype": "fp32"}, "w": {"shape": [2], "dtype": "fp32"}}}, "axes ['Q']"),
        ({"scalars": {"alpha": float("nan")}}, "workloads.jsonl:1: "),
    ],
)
def test_a_bad_row_is_named_with_field_and_remedy(
    load: Callable[..., Task], tiny_row_dicts: Callable[[], Rows], fields: dict[str, Any], field: str
) -> None:
    message = refused(load, rows=changed(tiny_row_dicts(), **fields))
    assert "workloads.jsonl" in message
    assert field in message


@pytest.mark.parametrize("missing", ["id", "op", "set", "inputs", "outputs", "bytes_min"])
def test_a_row_lacks_a_field(load: Callable[..., Task], tiny_row_dicts: Callable[[], Rows], missing: str) -> None:
    rows = tiny_row_dicts()
    del rows[1][missing]
    message = refused(load, rows=rows)
    assert f"workloads.jsonl:2: {missing}: Field required" in message
    assert f"remedy: add {missing}" in message


def test_an_id_is_used_once(load: Callable[..., Task], tiny_row_dicts: Callable[[], Rows]) -> None:
    rows = tiny_row_dicts()
    message = refused(load, rows=[*rows, rows[0]])
    assert f"workloads.jsonl:{len(rows) + 1}: row axpy_small: id: is also that of line 1" in message


def test_all_problems_of_all_files_are_reported_with_their_lines(
    load: Callable[..., Task], task_texts: dict[str, str], tiny_row_dicts: Callable[[], Rows]
) -> None:
    toml = task_texts["toml"].replace("block_ms = 1.0", "blok_ms = 1.0").replace("atol = 1e-5", "atol = -1.0")
    rows = tiny_row_dicts()
    del rows[1]["op"]
    rows[2]["bytes_min"] = "many"
    message = refused(load, toml=toml, rows=rows)
    lines = toml.splitlines()
    timing = 1 + next(number for number, line in enumerate(lines) if line.startswith("blok_ms"))
    tolerance = 1 + next(number for number, line in enumerate(lines) if "atol" in line)
    for place in (
        f"task.toml:{timing}: timing.blok_ms", f"task.toml:{tolerance}: tolerance.fp32.atol",
        "workloads.jsonl:2: op", "workloads.jsonl:3: bytes_min",
    ):  # fmt: skip
        assert place in message
    assert "did you mean block_ms" in message


def test_all_rows_that_do_not_fit_their_ops_are_reported(
    load: Callable[..., Task], tiny_row_dicts: Callable[[], Rows]
) -> None:
    rows = tiny_row_dicts()
    rows[0] |= {"op": "axpi", "bytes_min": 1}
    rows[1] |= {"scalars": {"beta": 1.0}, "bytes_min": 1}
    message = refused(load, rows=rows)
    for place in ("workloads.jsonl:1: row axpy_small: op", "axpy_wide: scalars", "axpy_wide: bytes_min"):
        assert place in message
    assert "did you mean axpy" in message


def test_all_problems_of_definitions_are_reported_with_their_lines(load: Callable[..., Task]) -> None:
    ops = """from torch import Tensor
from kernwright.core.op import define

@define(outputs=["y"], activations=["z"])
def axpy(x: Tensor, w: Tensor, *, alpha: float) -> Tensor:
    return x

@define(outputs=["y"], activations=["z"])
def negate(x: Tensor) -> Tensor:
    return -x
"""
    message = refused(load, ops=ops)
    assert "definitions.py:5: axpy: scalars ['alpha']" in message
    assert "definitions.py:9: negate: activations: names ['z']" in message
    assert "definitions.py:2: is not valid Python" in refused(load, ops="import torch\ndef f(:\n")


@pytest.mark.parametrize("line", ['{"id": ', "[1, 2]", "7", "{'id': 1}"])
def test_a_line_that_is_no_row_is_numbered(tmp_path: Path, write_task: Callable[..., Path], line: str) -> None:
    folder = write_task(tmp_path / "t")
    rows = folder / "workloads.jsonl"
    rows.write_text(rows.read_text() + "\n" + line + "\n")
    with pytest.raises(BadFile, match=rf"workloads\.jsonl:{len(rows.read_text().splitlines())}: "):
        load_task(folder)


def test_no_rows_are_no_task(load: Callable[..., Task]) -> None:
    assert "holds no rows" in refused(load, rows=[])


@pytest.mark.parametrize("name", ["task.toml", "workloads.jsonl", "definitions.py"])
def test_a_missing_file_is_named(tmp_path: Path, write_task: Callable[..., Path], name: str) -> None:
    folder = write_task(tmp_path / "t")
    (folder / name).unlink()
    with pytest.raises(BadFile, match=name):
        load_task(folder)


def test_a_file_that_is_not_text_is_named(tmp_path: Path, write_task: Callable[..., Path]) -> None:
    folder = write_task(tmp_path / "t")
    (folder / "workloads.jsonl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadFile, match=r"workloads\.jsonl: cannot be read"):
        load_task(folder)


# Rows by pattern


@pytest.mark.parametrize(
    ("pattern", "op", "ids"),
    [
        (None, "axpy", ["axpy_small", "axpy_wide"]),
        ("smoke", None, ["axpy_small", "axpy_wide", "accumulate", "negate"]),
        ("production", None, ["huge"]),
        ("axpy_*", None, ["axpy_small", "axpy_wide"]),
        ("all", "axpy", ["axpy_small", "axpy_wide", "huge"]),
        ("*a*e", "negate", ["negate"]),
    ],
)
def test_rows_are_chosen_by_set_or_glob(
    load: Callable[..., Task], pattern: str | None, op: str | None, ids: list[str]
) -> None:
    assert [row.id for row in load().select(pattern, op)] == ids


@pytest.mark.parametrize(("pattern", "op"), [("nothing*", None), ("negate", "axpy"), ("grid", None), ("[", None)])
def test_a_pattern_without_rows_says_how_to_list_them(load: Callable[..., Task], pattern: str, op: str | None) -> None:
    with pytest.raises(KernwrightError, match="kernwright task show tiny"):
        load().select(pattern, op)


@pytest.mark.parametrize("pattern", ["axpy_small,nosuch", "nosuch, axpy_*", "smoke,grid,nosuch", "axpy_*,nosuch*"])
def test_a_word_of_a_pattern_without_rows_is_named(load: Callable[..., Task], pattern: str) -> None:
    """Before, a typing error silently dropped a row."""
    with pytest.raises(KernwrightError, match=r"no rows that match '(grid,)?nosuch") as refused:
        load().select(pattern)
    assert "axpy" not in refused.value.cause
    assert {row.id for row in load().matching(pattern)} >= {"axpy_small"}
    assert "nosuch" not in load().narrowed(pattern)
    assert load().select(load().narrowed(pattern)) == load().matching(pattern)


@pytest.mark.parametrize(("pattern", "writes_out"), [("smoke,rowmod_qwen_s19", False), ("rowmod_*", True)])
def test_a_grid_is_expanded_only_if_the_pattern_may_match_its_rows(pattern: str, writes_out: bool) -> None:
    task = find_task("fuse_scale_shift")
    assert any(row.id == "rowmod_qwen_s19" for row in task.select(pattern))
    assert ("grid_rows" in vars(task)) is writes_out


def test_words_of_another_op_are_no_error(load: Callable[..., Task]) -> None:
    assert [row.id for row in load().select("axpy_*, negate,", "axpy")] == ["axpy_small", "axpy_wide"]


def test_among_several_tasks_those_with_such_rows_count(
    load: Callable[..., Task], write_task: Callable[..., Path], tmp_path: Path, tiny_row_dicts: Callable[[], Rows]
) -> None:
    tiny = load()
    few = load_task(write_task(tmp_path / "few", rows=[row for row in tiny_row_dicts() if row["id"] == "negate"]))
    both = [tiny, few]
    assert tasks_with_rows(both, "axpy_*,negate", named=False) == both
    assert tasks_with_rows(both, "axpy_*,huge", named=False) == [tiny]
    assert tasks_with_rows(both, "axpy_*,negate", named=True) == both, "each has its part"
    for pattern, named, told in (
        ("axpy_*", True, f"no rows of {few.name} match 'axpy_*'"),
        ("negate,nosuch", True, f"no rows of {tiny.name}, {few.name} match 'nosuch'"),
        ("negate,nosuch", False, "no rows of any task match 'nosuch'"),
        ("grid", False, "no rows of any task match 'grid'"),
        (",", False, "no rows of any task match ','"),
    ):
        with pytest.raises(KernwrightError, match="task show") as refused:
            tasks_with_rows(both, pattern, named=named)
        assert refused.value.cause == told


def test_only_the_ops_that_rows_use_are_part_of_a_task(
    load: Callable[..., Task], tiny_row_dicts: Callable[[], Rows]
) -> None:
    task = load(rows=tiny_row_dicts()[:2])
    assert list(task.ops) == ["axpy"]
    assert task.op_of(task.rows[0]).name == "axpy"
    assert task.tolerance_for("fp32").atol == 1e-5
    assert json.loads(json.dumps(task.policy.model_dump()))["block_ms"] == 1.0
