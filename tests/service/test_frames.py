"""Frames, forms of requests, and the comparison of two programs."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernwright.judge.judge_request import JudgeRequest
from kernwright.service.frames import LENGTH, FrameReader, FrameTooLarge
from kernwright.service.request_form import BadForm, from_form, resolved, to_form
from kernwright.service.same_program import SameProgram


@given(st.lists(st.binary(max_size=40)), st.lists(st.integers(1, 30), min_size=1))
def test_frames_come_whole_however_they_are_cut(payloads: list[bytes], cuts: list[int]) -> None:
    data = b"".join(LENGTH.pack(len(payload)) + payload for payload in payloads)
    reader, found, place = FrameReader(40), [], 0
    while place < len(data):
        size = cuts[place % len(cuts)]
        found += reader.feed(data[place : place + size])
        place += size
    assert found == payloads


def test_a_frame_above_the_limit_is_refused_by_its_length() -> None:
    with pytest.raises(FrameTooLarge):
        FrameReader(10).feed(LENGTH.pack(11))


def test_a_form_keeps_every_field(tiny_folder: Path) -> None:
    """Each field that a form may hold has another value than its default."""
    request = JudgeRequest(
        task=str(tiny_folder), candidate=Path("/c"), baseline="b", rows="r", device="cuda:1", seed=2**62, quick=True,
        against_itself=True, contender="k", ledger=Path("/l"), wait_s=1.5, census=False, deadline_s=2.5, rounds=3,
        metric="wall", command="kernwright judge",
    )  # fmt: skip
    default = JudgeRequest(task="", candidate=None)
    changed = [field.name for field in fields(request) if getattr(request, field.name) != getattr(default, field.name)]
    assert {field.name for field in fields(request)} - set(changed) == {"output"}
    assert from_form(to_form(replace(request, output=print))) == request


def test_a_request_is_resolved_by_the_client(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KERNWRIGHT_LEDGER", raising=False)
    monkeypatch.setenv("KERNWRIGHT_TASKS", str(tiny_folder.parent))
    found = resolved(JudgeRequest(task="tiny", candidate=Path("link")))
    assert (found.task, found.ledger) == (str(tiny_folder), tmp_path / ".kernwright" / "ledger")
    assert found.candidate == tmp_path / "link", "a candidate has the name of the folder that was given"
    with pytest.raises(BadForm):
        from_form(to_form(replace(found, ledger=Path("relative"))))


def test_the_environment_that_matters_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    here = SameProgram.here()
    for name in ("KERNWRIGHT_LEDGER", "SOME_OTHER_VARIABLE"):
        monkeypatch.setenv(name, "changed")
    assert here.difference(here.code, SameProgram.here().environment) is None
    monkeypatch.setenv("KERNWRIGHT_WALLS_OFF", "user")
    monkeypatch.delenv("PATH")
    different = here.difference(here.code, SameProgram.here().environment)
    assert different is not None and "KERNWRIGHT_WALLS_OFF, PATH" in different
    assert here.difference("other code", here.environment) is not None
