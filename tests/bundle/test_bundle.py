"""Bundles of wheels of a few bytes. `test_bundle_cli.py` makes one with the real pip."""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kernwright.bundle import bundle as bundle_module
from kernwright.bundle.bundle import BundleRequest, make_bundle
from kernwright.bundle.manifest import check_bundle, read_manifest
from kernwright.core.errors import EnvironmentProblem, KernwrightError
from kernwright.packages.download import WheelSource
from kernwright.packages.files import folder_bytes, sha256
from kernwright.packages.pin import Pin
from kernwright.packages.wheel_target import make_target

A, B, C = Pin("tiny-a", "1.0"), Pin("tiny-b", "2.0"), Pin("tiny-c", "1.0")


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory, write_wheel: Callable[..., Path]) -> Path:
    folder = tmp_path_factory.mktemp("shelf")
    write_wheel(folder, "tiny-a", files={"tiny_a/__init__.py": "v = 'a'" + " " * 600, "space/a.py": ""})
    write_wheel(folder, "tiny-b", version="2.0", files={"tiny_b.py": "import tiny_a" + " " * 600, "space/b.py": ""})
    write_wheel(folder, "tiny-c", files={"tiny_a/__init__.py": "v = 'another'"})
    return folder


@pytest.fixture
def request_(tmp_path: Path, shelf: Path, copied_wheels: None) -> BundleRequest:
    return BundleRequest(
        folder=tmp_path / "bundle", target=make_target("3.12", []), core=(A, B), package=False,
        source=WheelSource(folder=shelf),
    )  # fmt: skip


def quiet(said: str) -> None: ...


def run(code: str, path: str) -> str:
    """Run code in an interpreter that sees only the bundle and the standard library."""
    command = [sys.executable, "-S", "-c", code]
    return subprocess.run(command, env={"PYTHONPATH": path}, capture_output=True, text=True, check=True).stdout.strip()


def test_it_can_be_imported_and_says_what_it_holds(request_: BundleRequest, shelf: Path) -> None:
    manifest = make_bundle(dataclasses.replace(request_, core=(A,), more=(B,)), quiet)
    code = "import tiny_b, tiny_a, space.a, space.b, importlib.metadata as m; print(tiny_a.v, m.version('tiny-b'))"
    assert run(code, str(request_.folder)) == "a 2.0"
    assert manifest == check_bundle(request_.folder)
    held = {package.name: package for package in manifest.packages}
    assert (held["tiny-a"].group, held["tiny-b"].group) == ("core", "more")
    for package in held.values():
        assert package.wheel and package.sha256 == sha256(shelf / package.wheel)
    assert sum(package.bytes for package in held.values()) == manifest.total_bytes
    assert manifest.core_bytes == held["tiny-a"].bytes
    assert folder_bytes(request_.folder) == manifest.total_bytes + (request_.folder / "bundle.json").stat().st_size
    assert json.loads((request_.folder / "bundle.json").read_text())["target"]["python"] == "3.12"
    assert [path.name for path in request_.folder.parent.iterdir()] == ["bundle"], "nothing else is left"


def test_kernwright_and_its_tasks_come_along(request_: BundleRequest) -> None:
    manifest = make_bundle(dataclasses.replace(request_, core=(), package=True), quiet)
    assert not list(request_.folder.rglob("__pycache__"))
    assert run("import kernwright; print(kernwright.__file__)", str(request_.folder)).startswith(str(request_.folder))
    package = request_.folder / "kernwright"
    assert (package / "_tasks" / "norm_scale_shift" / "task.toml").is_file()
    assert (package / "_constraints.txt").is_file()
    assert [p.name for p in manifest.packages] == ["kernwright"] and manifest.core_bytes > 100_000


def test_a_second_run_changes_nothing_and_downloads_nothing(
    request_: BundleRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = make_bundle(request_, quiet)
    with monkeypatch.context() as patch:
        patch.setattr(bundle_module, "fetch", lambda *_: pytest.fail("it was fetched again"))
        assert make_bundle(request_, quiet) == first
    (request_.folder / "tiny_b.py").unlink()
    assert make_bundle(request_, quiet).parts == first.parts, "a damaged one is made again"
    assert (request_.folder / "tiny_b.py").is_file()


def test_another_request_makes_another_bundle_in_its_place(request_: BundleRequest) -> None:
    make_bundle(request_, quiet)
    make_bundle(dataclasses.replace(request_, core=(A,)), quiet)
    assert not (request_.folder / "tiny_b.py").exists()
    assert [package.name for package in check_bundle(request_.folder).packages] == ["tiny-a"]


def test_a_version_that_was_bundled_before_must_be_the_same_file(
    request_: BundleRequest, tmp_path: Path, write_wheel: Callable[..., Path]
) -> None:
    make_bundle(request_, quiet)
    forged = tmp_path / "forged"
    write_wheel(forged, "tiny-a", files={"tiny_a/__init__.py": "v = 'forged'"})
    with pytest.raises(KernwrightError, match=r"tiny-a==1.0 is pinned"):
        make_bundle(dataclasses.replace(request_, core=(A,), source=WheelSource(folder=forged)), quiet)
    assert run("import tiny_a; print(tiny_a.v)", str(request_.folder)) == "a"


def test_an_interrupted_run_leaves_nothing_incomplete_and_the_next_continues(
    request_: BundleRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    unpack = bundle_module.unpack_or_delete

    def stop_at_b(wheel: Path, pin: Pin, folder: Path) -> list[str]:
        if pin == B:
            raise KeyboardInterrupt
        return unpack(wheel, pin, folder)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(bundle_module, "unpack_or_delete", stop_at_b)
        make_bundle(request_, quiet)
    assert not request_.folder.exists()
    # The shelf no longer exists, so these wheels come from the earlier run.
    gone = dataclasses.replace(request_, source=WheelSource(folder=request_.folder.parent))
    assert len(make_bundle(gone, quiet).packages) == 2
    check_bundle(request_.folder)


def test_wheels_kept_for_another_python_are_not_used(request_: BundleRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(bundle_module, "unpack_or_delete", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        make_bundle(request_, quiet)
    other = dataclasses.replace(
        request_, target=make_target("3.11", []), source=WheelSource(folder=request_.folder.parent)
    )
    with pytest.raises(KernwrightError, match="no wheel of tiny-a"):
        make_bundle(other, quiet)


def test_a_failure_without_downloaded_wheels_leaves_nothing(request_: BundleRequest) -> None:
    with pytest.raises(KernwrightError, match="no wheel of no-such-thing"):
        make_bundle(dataclasses.replace(request_, core=(Pin("no-such-thing", "1"),)), quiet)
    assert list(request_.folder.parent.iterdir()) == []


def test_a_bad_wheel_is_not_kept(request_: BundleRequest, tmp_path: Path, write_wheel: Callable[..., Path]) -> None:
    bad = tmp_path / "bad"
    write_wheel(bad, "tiny-a", record={"tiny_a/__init__.py": "sha256=AAAA"})
    one = dataclasses.replace(request_, core=(A,))
    with pytest.raises(KernwrightError, match="RECORD"):
        make_bundle(dataclasses.replace(one, source=WheelSource(folder=bad)), quiet)
    assert make_bundle(one, quiet).packages[0].name == "tiny-a"


def test_parts_work_together(request_: BundleRequest) -> None:
    manifest = make_bundle(dataclasses.replace(request_, part_bytes=1500), quiet)
    assert [part.folder for part in manifest.parts] == ["part-1", "part-2"]
    assert all(part.bytes <= 1500 for part in manifest.parts)
    path = ":".join(str(place) for place in manifest.search_path(request_.folder))
    assert run("import tiny_b, space.a, space.b; print(tiny_b.tiny_a.v)", path) == "a"
    assert make_bundle(dataclasses.replace(request_, part_bytes=1500), quiet) == manifest
    (request_.folder / "part-2").rename(request_.folder.parent / "left at home")
    with pytest.raises(KernwrightError, match="part-2 is missing"):
        check_bundle(request_.folder)


def test_two_packages_with_one_file_are_refused(request_: BundleRequest) -> None:
    with pytest.raises(KernwrightError, match=r"both bring tiny_a/__init__.py"):
        make_bundle(dataclasses.replace(request_, core=(A, C)), quiet)
    assert not request_.folder.exists()


def test_a_folder_with_other_things_is_left_alone(request_: BundleRequest) -> None:
    request_.folder.mkdir()
    notes = request_.folder / "notes.txt"
    notes.write_text("mine")
    with pytest.raises(KernwrightError, match="neither empty nor a bundle"):
        make_bundle(request_, quiet)
    notes.rename(request_.folder.parent / "notes.txt")
    make_bundle(request_, quiet)  # An empty folder is accepted.
    notes.write_text("mine")
    with pytest.raises(KernwrightError, match=r"not belong to the bundle: notes\.txt"):
        make_bundle(dataclasses.replace(request_, core=(A,)), quiet)
    assert notes.read_text() == "mine"


def test_a_file_in_its_place_is_refused(request_: BundleRequest) -> None:
    request_.folder.write_text("")
    with pytest.raises(KernwrightError, match="is a file"):
        make_bundle(request_, quiet)


def test_a_full_disk_is_one_message_and_the_old_bundle_stays(
    request_: BundleRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_bundle(request_, quiet)

    def full(*_: object) -> list[str]:
        raise OSError(errno.ENOSPC, "No space left on device", "tiny_a.py")

    monkeypatch.setattr(bundle_module, "unpack_or_delete", full)
    with pytest.raises(EnvironmentProblem, match="No space left") as caught:
        make_bundle(dataclasses.replace(request_, core=(A,)), quiet)
    assert "free some space" in caught.value.remedy
    assert len(check_bundle(request_.folder).packages) == 2


def test_two_runs_at_once_do_not_mix(request_: BundleRequest) -> None:
    shop = request_.folder.with_name("bundle.partial")
    shop.mkdir()
    with (shop / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(EnvironmentProblem, match="another run"):
            make_bundle(request_, quiet)


def test_a_changed_file_is_found(request_: BundleRequest) -> None:
    make_bundle(request_, quiet)
    run("import tiny_b", str(request_.folder))  # Compiled files may be added.
    check_bundle(request_.folder)
    (request_.folder / "tiny_b.py").write_text("import os")
    with pytest.raises(KernwrightError, match="missing or changed"):
        check_bundle(request_.folder)
    (request_.folder / "bundle.json").write_text("{")
    assert read_manifest(request_.folder) is None
    with pytest.raises(KernwrightError, match="not a bundle"):
        check_bundle(request_.folder)
