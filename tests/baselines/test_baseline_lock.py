"""The shipped lock file: every name in it resolves to an adapter or a wheel."""

from __future__ import annotations

import importlib
from collections import Counter
from pathlib import Path

import pytest

from kernwright.baselines import lock
from kernwright.baselines.lock import CUTEDSL, Lock, read_lock
from kernwright.cli.packages.baseline import trees_for
from kernwright.core.errors import BadFile, EnvironmentProblem, KernwrightError
from kernwright.packages.tree import Machine
from kernwright.packages.wheel_target import make_target

GPU_HOST = Machine(architecture="x86_64", python="3.12")


def test_the_issue_s_baselines_are_locked() -> None:
    assert {"sglang@0.5.23", "sglang@0.5.12.post1"} <= set(read_lock().names())
    assert any(name.startswith("liger@") for name in read_lock().names())


def test_no_two_trees_share_a_wheel_or_a_digest() -> None:
    trees = read_lock().tree
    assert max(Counter(wheel.sha256 for tree in trees for wheel in tree.wheels).values()) == 1
    assert max(Counter(tree.digest for tree in trees).values()) == 1


@pytest.mark.parametrize("name", read_lock().names())
def test_a_name_is_its_wheel_s_version_and_has_adapters(name: str) -> None:
    published = read_lock().find(name)
    assert read_lock().main_tree(name).wheels[0].version == name.partition("@")[2]
    assert importlib.import_module(f"kernwright.baselines.{published.adapters}").TABLE.adapters


def test_a_native_tree_is_chosen_by_machine() -> None:
    chosen = read_lock().tree_for("msgspec", GPU_HOST)
    assert chosen and "cp312" in chosen.wheels[0].file and "x86_64" in chosen.wheels[0].file
    assert read_lock().tree_for("msgspec", Machine(architecture="riscv64", python="3.12")) is None
    assert read_lock().tree_for(CUTEDSL, GPU_HOST)


def test_a_bundle_s_target_names_its_machine() -> None:
    assert Machine.of(make_target("3.12", ["manylinux_2_28_x86_64"])) == GPU_HOST
    assert Machine.of(make_target("3.11", ["manylinux_2_28_aarch64"])).architecture == "aarch64"


def test_on_another_machine_the_message_names_the_right_one() -> None:
    riscv = Machine(architecture="riscv64", python="3.12")
    with pytest.raises(EnvironmentProblem, match=r"Python 3\.12 on x86_64") as told:
        trees_for(read_lock(), ["liger@0.8.5"], riscv, cutedsl=True)
    assert "is not locked for Python 3.12 on riscv64" in str(told.value)


def test_the_message_for_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(KernwrightError, match=r"use one of: sglang@0\.5\.23"):
        read_lock().find("sglang@9")


def test_a_tree_that_is_not_locked_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "lock.toml"
    path.write_text('tree = []\n[[baseline]]\nname = "a@1"\ntree = "b"\nadapters = "liger"\n')
    monkeypatch.setattr(lock, "LOCK", path)
    with pytest.raises(BadFile, match="not locked"):
        read_lock()


def test_a_wheel_gives_its_name_and_version_by_its_file() -> None:
    trees: Lock = read_lock()
    wheel = next(w for tree in trees.tree for w in tree.wheels if w.file.startswith("nvidia_cutlass_dsl_libs_base"))
    assert (wheel.name, wheel.version) == ("nvidia-cutlass-dsl-libs-base", "4.8.1")
