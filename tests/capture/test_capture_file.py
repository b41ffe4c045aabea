"""The capture file: it reads back as it was written, and errors in it are reported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kernwright.capture.capture import (
    Capture,
    CapturedArgument,
    CapturedCall,
    CapturedDict,
    CapturedList,
    CapturedScalar,
    CapturedTensor,
    CaptureHeader,
    read_capture,
    write_capture,
)
from kernwright.core.errors import BadFile

TENSOR = CapturedTensor(shape=(2, 3), dtype="bfloat16", strides=(3, 1), device="cuda", requires_grad=True)


def example() -> Capture:
    scalars = [
        CapturedScalar(type="bool", value=True), CapturedScalar(type="int", value=1),
        CapturedScalar(type="float", value=1.0), CapturedScalar(type="none", value=None),
        CapturedScalar(type="str", value="é\n"), CapturedScalar(type="float", value="nan"),
    ]  # fmt: skip
    arguments = (
        CapturedArgument(name="x", value=TENSOR),
        CapturedArgument(name="mods", value=CapturedDict(items={"scale": TENSOR, "0": scalars[0]})),
        CapturedArgument(name="more", value=CapturedList(items=(*scalars, CapturedList(items=(TENSOR,))))),
    )
    call = CapturedCall(call="m:f", arguments=arguments, returns=CapturedList(items=(TENSOR, TENSOR)), count=3)
    return Capture(header=CaptureHeader(program="x.py", targets=("m:f",)), calls=(call,))


def test_a_written_capture_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    write_capture(example(), path)
    read = read_capture(path)
    assert read == example()
    (items,) = (a.value for a in read.calls[0].arguments if isinstance(a.value, CapturedList))
    assert [type(i.value) for i in items.items[:3]] == [bool, int, float]  # type: ignore[union-attr]
    assert [p.name for p in tmp_path.iterdir()] == ["c.jsonl"]


def test_values_are_found_by_name() -> None:
    values = example().calls[0].values()
    dicts = ["mods[scale]", "mods[0]"]
    assert list(values) == ["x", *dicts, *(f"more[{n}]" for n in range(6)), "more[6][0]", "return[0]", "return[1]"]
    assert values["more[6][0]"] == TENSOR


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"call": None}, ":2: call: "),
        ({"count": 0}, ":2: count: "),
        ({"values": [1.0]}, ":2: values: "),
        ({"arguments": [{"name": "x", "value": {"kind": "tensor", "shape": [-1]}}]}, ":2: arguments.0.value.tensor"),
        ({"arguments": [{"name": "x", "value": {"kind": "array"}}]}, ":2: arguments.0.value"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    path = tmp_path / "c.jsonl"
    write_capture(example(), path)
    header, line = path.read_text().splitlines()
    path.write_text(header + "\n" + json.dumps(json.loads(line) | change) + "\n")
    with pytest.raises(BadFile) as caught:
        read_capture(path)
    assert f"c.jsonl{said}" in str(caught.value)
    assert caught.value.remedy


@pytest.mark.parametrize("text", ["", "\n", "{}", "[1]", '{"kind": "other"}', "nonsense", '{"version": 2}'])
def test_a_file_that_is_not_a_capture_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text(text)
    with pytest.raises(BadFile, match=r"c\.jsonl"):
        read_capture(path)
