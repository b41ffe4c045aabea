"""Baselines in a bundle: they are cut into its parts, and the store of another machine unpacks them."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest
from fake_package import Shelf

from kernwright.bundle.bundle import BundleRequest, make_bundle
from kernwright.bundle.manifest import check_bundle
from kernwright.core.errors import KernwrightError
from kernwright.packages import store
from kernwright.packages.store import CARRIED, Store
from kernwright.packages.wheel_target import make_target

PART = 4000


@pytest.fixture
def request_of(shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BundleRequest:
    monkeypatch.setenv(store.VARIABLE, str(tmp_path / "store"))
    noise = os.urandom(4500).hex()  # random bytes, so that compression does not shrink them
    tree = shelf.tree("pkg", {"pkg/__init__.py": "", "pkg/noise.txt": noise}, keep=("pkg/*",))
    return BundleRequest(
        folder=tmp_path / "bundle",
        target=make_target("3.12", []),
        core=(),
        baselines=(tree,),
        package=False,
        part_bytes=PART,
        source=shelf.source,
    )


def test_a_tree_larger_than_a_part_is_cut_and_made_whole_again(
    request_of: BundleRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = make_bundle(request_of, lambda _: None)
    assert len(manifest.parts) > 1 and all(part.bytes <= PART for part in manifest.parts)
    (package,) = manifest.packages
    assert (package.name, package.group, package.sha256) == ("pkg", "baselines", request_of.baselines[0].digest)
    assert all((place / CARRIED).is_dir() for place in manifest.search_path(request_of.folder))
    for place in manifest.search_path(request_of.folder):
        monkeypatch.syspath_prepend(str(place))
    monkeypatch.setattr(store, "fetch", lambda *_: pytest.fail("asked the network"))
    there = Store(tmp_path / "there")
    assert (there.need(request_of.baselines[0]) / "pkg" / "noise.txt").is_file()


def test_a_bundle_with_its_baselines_is_up_to_date(request_of: BundleRequest) -> None:
    make_bundle(request_of, lambda _: None)
    said: list[str] = []
    make_bundle(request_of, said.append)
    assert said == [f"{request_of.folder} is up to date"]
    assert check_bundle(request_of.folder).packages[0].name == "pkg"


def test_a_package_larger_than_a_part_is_refused_before_anything_is_compressed(request_of: BundleRequest) -> None:
    said: list[str] = []
    with pytest.raises(KernwrightError, match="kernwright") as caught:
        make_bundle(dataclasses.replace(request_of, package=True), said.append)
    assert "--part-size" in caught.value.remedy
    assert not [line for line in said if line.startswith("compressing")]
