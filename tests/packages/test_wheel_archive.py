"""Archives: the content survives, and pieces are no larger than requested."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernwright.packages.archive import cut, pack, restore
from kernwright.packages.files import named_files


def test_the_same_files_give_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "tree" / "a").mkdir(parents=True)
    (tmp_path / "tree" / "a" / "x.py").write_text("x = 1\n")
    (tmp_path / "tree" / "tool").write_text("#!/bin/sh\n")
    (tmp_path / "tree" / "tool").chmod(0o755)
    pack(tmp_path / "tree", tmp_path / "one")
    (tmp_path / "tree" / "a" / "x.py").touch()
    pack(tmp_path / "tree", tmp_path / "two")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    (tmp_path / "out").mkdir()
    restore([tmp_path / "one"], tmp_path / "out")
    assert set(named_files(tmp_path / "out")) == {"a/x.py", "tool"}
    assert (tmp_path / "out" / "tool").stat().st_mode & 0o100


@pytest.mark.parametrize("size", [0, 1, 99, 100, 101, 1000])
@pytest.mark.parametrize("most", [1, 100, 2000])
def test_pieces_join_to_the_whole(tmp_path: Path, size: int, most: int) -> None:
    data = bytes(number % 251 for number in range(size))
    (tmp_path / "whole").write_bytes(data)
    pieces = cut(tmp_path / "whole", most, lambda number, count: f"{number}of{count}", tmp_path)
    assert b"".join(piece.read_bytes() for piece in pieces) == data
    assert all(piece.stat().st_size <= most for piece in pieces)
    assert len(pieces) == max(1, -(-size // most))
