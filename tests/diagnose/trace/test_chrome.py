"""Trace files: whole, compressed, in both forms, and damaged in every way."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from kernwright.diagnose.trace import chrome
from kernwright.diagnose.trace.chrome import ChromeTrace, TraceError

EVENTS = [{"ph": "X", "name": f"event {number} \u00fc", "args": {"n": [number, 1.5]}} for number in range(50)]


def written(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "trace.json"
    path.write_bytes(content)
    return path


def forms() -> dict[str, bytes]:
    whole = json.dumps({"a": {"b": 1}, "traceEvents": EVENTS, "traceName": "x"}, indent=1).encode()
    array = json.dumps(EVENTS).encode()
    return {
        "object": whole,
        "gzip": gzip.compress(whole),
        "array": array,
        "array without its closing bracket": array[:-1],
        "array after a comma": array[:-1] + b",\n",
        "not ASCII": json.dumps({"traceEvents": EVENTS}, ensure_ascii=False).encode(),
    }


@pytest.mark.parametrize("chunk", [1, 7, 1 << 20])
@pytest.mark.parametrize("form", forms())
def test_events_come_as_json_reads_them(form: str, chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chrome, "CHUNK_BYTES", chunk)
    assert list(ChromeTrace(written(tmp_path, forms()[form]))) == EVENTS


def test_values_around_the_events_are_the_header(tmp_path: Path) -> None:
    trace = ChromeTrace(written(tmp_path, forms()["object"]))
    list(trace)
    assert trace.header == {"a": {"b": 1}, "traceName": "x"}


WHOLE = forms()["object"]
DAMAGED = {
    "missing": (None, "cannot read"),
    "empty": (b"", "empty"),
    "no JSON": (b"PK\x03\x04", "not JSON"),
    "no events": (b'{"a": 1}', "traceEvents"),
    "events of another type": (b'{"traceEvents": {"a": 1}}', "traceEvents"),
    "half of an object": (WHOLE[: len(WHOLE) // 2], "truncated"),
    "end between events": (WHOLE[: WHOLE.rindex(b'"traceName"') - 10], "truncated"),
    "half of a gzip file": (gzip.compress(WHOLE)[:-40], "truncated"),
    "damaged gzip": (gzip.compress(WHOLE)[:30] + bytes(40), "damaged"),
    "malformed event": (WHOLE.replace(b'"n": [', b'"n": (', 1) + b" " * 64, "not valid JSON"),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_file_is_one_error_that_says_what_is_wrong(damage: str, tmp_path: Path) -> None:
    content, said = DAMAGED[damage]
    path = tmp_path / "missing.json" if content is None else written(tmp_path, content)
    with pytest.raises(TraceError, match=said) as caught:
        list(ChromeTrace(path))
    assert str(path) in caught.value.cause
    assert caught.value.remedy


def test_progress_reaches_the_end(tmp_path: Path) -> None:
    shares: list[float] = []
    list(ChromeTrace(written(tmp_path, forms()["gzip"]), shares.append))
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
