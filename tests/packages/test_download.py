"""Downloads: the real pip on a folder of wheels, and its failures as a cause and a remedy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kernwright.bundle.requirements import known_pins
from kernwright.core.errors import KernwrightError
from kernwright.packages import download
from kernwright.packages.download import Unreachable, WheelSource, _explained, fetch
from kernwright.packages.files import sha256
from kernwright.packages.pin import Pin
from kernwright.packages.wheel import unpack
from kernwright.packages.wheel_target import make_target

TARGET = make_target("3.12", [])
A, B = Pin("tiny-a", "1.0"), Pin("tiny-b", "2.0")


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory, write_wheel: Callable[..., Path]) -> WheelSource:
    folder = tmp_path_factory.mktemp("shelf")
    write_wheel(folder, "tiny-a")
    write_wheel(folder, "tiny-b", version="2.0", tag="cp312-cp312-manylinux_2_24_x86_64")
    write_wheel(folder, "tiny-b", version="2.0", tag="cp311-cp311-manylinux_2_24_x86_64")
    write_wheel(folder, "tiny-b", version="3.0", tag="cp312-cp312-win_amd64")
    return WheelSource(folder=folder)


def test_the_wheels_are_those_of_the_other_machine(shelf: WheelSource, tmp_path: Path) -> None:
    wheels = fetch([A, B], TARGET, shelf, tmp_path)
    assert [wheels[pin].name for pin in (A, B)] == [
        "tiny_a-1.0-py3-none-any.whl", "tiny_b-2.0-cp312-cp312-manylinux_2_24_x86_64.whl",
    ]  # fmt: skip
    assert {path.name for path in tmp_path.iterdir()} == {wheel.name for wheel in wheels.values()}


def test_a_present_wheel_is_not_fetched_again(
    shelf: WheelSource, tmp_path: Path, write_wheel: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[Pin]] = []
    monkeypatch.setattr(
        download, "_pip_download", lambda pins, *_: asked.append(pins) or write_wheel(_[2], "tiny-b", "2.0")
    )
    kept = write_wheel(tmp_path, "tiny-a")
    assert fetch([A, B], TARGET, shelf, tmp_path)[A] == kept
    assert asked == [[B]]


def test_other_bytes_than_the_known_ones_are_refused_and_not_kept(
    tmp_path: Path, write_wheel: Callable[..., Path]
) -> None:
    wheel = write_wheel(tmp_path, "tiny-a")
    good = sha256(wheel)
    assert fetch([Pin("tiny-a", "1.0", ("0" * 64, good))], TARGET, WheelSource(), tmp_path)
    with pytest.raises(KernwrightError, match=good):
        fetch([Pin("tiny-a", "1.0", ("0" * 64,))], TARGET, WheelSource(), tmp_path)
    assert not wheel.exists()


def test_no_wheel_for_that_platform(shelf: WheelSource, tmp_path: Path) -> None:
    with pytest.raises(KernwrightError) as caught:
        fetch([Pin("tiny-b", "3.0")], TARGET, shelf, tmp_path)
    assert "no wheel of tiny-b==3.0 for Python 3.12 on manylinux_2_28_x86_64" in caught.value.cause
    assert "2.0" in caught.value.remedy
    with pytest.raises(KernwrightError) as caught:
        fetch([Pin("no-such-thing", "1")], TARGET, shelf, tmp_path)
    assert "no wheel of no-such-thing==1" in caught.value.cause and "--find-links" in caught.value.remedy
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    with pytest.raises(KernwrightError, match="no such folder") as caught:
        WheelSource(folder=tmp_path / "wheels")
    assert "--find-links" in caught.value.cause


def test_an_index_that_does_not_answer_is_no_network(tmp_path: Path) -> None:
    nobody = WheelSource(index="http://127.0.0.1:9/simple")
    said = (
        "WARNING: Retrying (Retry(total=1)) after connection broken by 'NewConnectionError(...: [Errno 111] Connection "
        "refused')': /simple/rich/\nERROR: Could not find a version that satisfies the requirement rich==1 (from "
        "versions: none)\nERROR: No matching distribution found for rich==1"
    )
    error = _explained(said, [A], TARGET, nobody)
    assert isinstance(error, Unreachable) and "cannot be reached" in error.cause and "--find-links" in error.remedy


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "the disk is full"),
        ("/usr/bin/python3: No module named pip", "has no pip"),
        ("ERROR: something else\n", "tiny-a==1.0: ERROR: something else"),
        ("", "no output"),
    ],
)
def test_errors_of_pip_become_a_cause_and_a_remedy(said: str, cause: str) -> None:
    error = _explained(said, [A], TARGET, WheelSource())
    assert cause in error.cause and error.remedy


def test_a_pinned_wheel_comes_from_the_real_index(tmp_path: Path) -> None:
    pin = known_pins()["mdurl"]
    try:
        (wheel,) = fetch([pin], TARGET, WheelSource(), tmp_path).values()
    except Unreachable as reason:
        pytest.skip(f"no network: {reason.cause}")
    unpack(wheel, pin, tmp_path / "out")
    assert (tmp_path / "out" / "mdurl" / "__init__.py").is_file()
