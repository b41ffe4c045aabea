"""Lookup of configurations: the user's, then the shipped, then the default. No file can make a call fail."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from kernwright.core.errors import EnvironmentProblem
from kernwright.runtime.triton import tuning
from kernwright.runtime.triton.configurations import FEW, Configuration
from kernwright.runtime.triton.tuning import Entry, Found, IgnoredTable, Place, TuningTable

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("KERNWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(tuning, "SHIPPED", tmp_path / "shipped")
    tuning.forget()
    yield
    tuning.forget()


def entry(width: int = 3072, rows: int = 2, block: int = 4096, op: str = "rms_norm", **more: Any) -> Entry:
    return Entry(op=op, width=width, element_bytes=2, tokens="many", rows=rows, block=block, warps=8, **more)


def write(path: Path, *entries: Entry) -> None:
    TuningTable(place=Place(device="any"), entries=entries).write(path)


def mine() -> Path:
    return tuning.user_file(tuning.INTERPRETER)


def shipped() -> Path:
    return tuning.SHIPPED / f"{tuning.INTERPRETER}.json"


def look(width: int = 3072, op: str = "rms_norm", is_few: bool = False) -> Found:
    tuning.forget()
    return tuning.looked_up(op, width, 2, is_few, CPU)


def test_the_users_own_comes_before_the_shipped_and_that_before_the_default() -> None:
    assert look() == Found(Configuration(1, 4096, 8), "default")
    write(shipped(), entry(rows=2))
    assert (look().configuration, look().source) == (Configuration(2, 4096, 8), "shipped")
    write(mine(), entry(rows=4))
    assert (look().configuration, look().source, look().path) == (Configuration(4, 4096, 8), "yours", mine())
    for other in (look(op="layer_norm"), look(width=5120), look(is_few=True)):  # another situation
        assert other.source == "default"


def test_a_measured_width_comes_before_a_neighbour_in_any_table() -> None:
    write(mine(), entry(width=3000, rows=4), entry(width=2100, rows=1))
    write(shipped(), entry(width=3072, rows=2))
    assert look(3072).source == "shipped"
    assert (look(2800).configuration.rows, look(2200).configuration.rows) == (4, 1)  # the nearest width of one table
    assert look(4000).source == "yours"


@pytest.mark.parametrize(
    ("measured", "block", "width", "serves"),
    [
        (3072, 4096, 2049, True),  # the whole row in one piece, as before
        (3072, 4096, 2048, False),  # another power of two
        (3072, 1024, 4096, True),
        (3072, 1024, 3000, False),  # whole pieces before, a remainder now
        (3000, 1024, 2500, True),
    ],
)
def test_a_neighbour_is_used_if_its_pieces_fit_as_well(measured: int, block: int, width: int, serves: bool) -> None:
    assert entry(measured, 1, block).serves(width) == serves


@pytest.mark.parametrize(
    "text",
    [
        "{", "[]", '{"format": 2, "place": {"device": "any"}}', '{"format": 1}', "\0\xff",
        json.dumps({"place": {"device": "any"}, "entries": [{"op": "rms_norm"}]}),
        json.dumps({"place": {"device": "any"}, "entries": [entry().model_dump() | {"warps": 3}]}),
        json.dumps({"place": {"device": "any"}, "entries": [entry().model_dump() | {"rows": 4096}]}),
    ],
)  # fmt: skip
def test_a_bad_file_is_left_out_with_one_warning_that_names_it(text: str) -> None:
    write(shipped(), entry(rows=2))
    mine().parent.mkdir(parents=True)
    mine().write_text(text, encoding="latin-1")
    tuning.forget()
    with pytest.warns(IgnoredTable, match=r"triton-interpreter\.json is ignored") as told:
        found = tuning.looked_up("rms_norm", 3072, 2, False, CPU)
    assert len(told) == 1 and found.source == "shipped"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tuning.looked_up("rms_norm", 128, 2, False, CPU)


def test_a_folder_in_the_files_place_is_left_out_too() -> None:
    mine().mkdir(parents=True)
    with pytest.warns(IgnoredTable):
        assert look().source == "default"


def test_a_situation_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    write(mine(), entry(rows=4))
    assert tuning.chosen("rms_norm", 3072, FEW, 2, CPU).rows == 4
    monkeypatch.setattr(TuningTable, "read", lambda path: pytest.fail("read again"))
    write(mine(), entry(rows=2))
    assert tuning.chosen("rms_norm", 3072, FEW, 2, CPU).rows == 4
    assert tuning.looked_up.cache_info().misses == 1


def test_a_configuration_on_trial_comes_before_all_tables() -> None:
    write(mine(), entry(rows=4))
    with tuning.trying(Configuration(1, 512, 2)):
        assert tuning.chosen("rms_norm", 3072, FEW, 2, CPU) == Configuration(1, 512, 2)
    assert tuning.chosen("rms_norm", 3072, FEW, 2, CPU).rows == 4


def test_a_table_is_written_whole_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    write(mine(), entry(rows=4, us=1.5))
    before = mine().read_bytes()
    assert TuningTable.read(mine()).entries == (entry(rows=4, us=1.5),)

    def full(own: Path, to: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(EnvironmentProblem, match="No space left"):
        write(mine(), entry(rows=2))
    assert mine().read_bytes() == before
    assert list(mine().parent.iterdir()) == [mine()]


def test_a_gpu_that_is_not_here_has_the_default() -> None:
    assert tuning.looked_up("rms_norm", 3072, 2, False, torch.device("xpu")).source == "default"


def test_every_table_that_ships_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    for path in tuning.SHIPPED.glob("*.json"):
        table = TuningTable.read(path)
        assert table.entries and table.place.device and table.place.triton and table.date
        for own in table.entries:
            assert own.situation.default and own.us <= own.default_us
