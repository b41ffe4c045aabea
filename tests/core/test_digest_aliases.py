"""Records of an earlier digest rule count as records of the same code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernwright.core.digest_aliases import DigestAliases
from kernwright.core.errors import BadFile


def test_earlier_digests_are_replaced_and_others_stay(tmp_path: Path) -> None:
    path = tmp_path / "digests.json"
    path.write_text(json.dumps({"same": {"old": "new"}}))
    body = {"task": "t", "task_digest": "old", "baseline_digest": "other", "candidate_digest": "old"}
    found = DigestAliases.load(path).apply(body)
    assert found == {"task": "t", "task_digest": "new", "baseline_digest": "other", "candidate_digest": "new"}
    assert body["task_digest"] == "old"
    assert DigestAliases.load(tmp_path / "none.json").apply(body) == body


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"same": 3}'])
def test_a_file_without_pairs_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "digests.json"
    path.write_text(text)
    with pytest.raises(BadFile, match=r"digests\.json"):
        DigestAliases.load(path)
