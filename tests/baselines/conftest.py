"""Fixtures: a lock file and a store for the tests alone."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from kernwright.baselines import lock
from kernwright.packages import store
from kernwright.packages.tree import Tree


@pytest.fixture
def lock_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that replaces the package's lock file, and the user's store by an empty one."""

    def write(*trees: Tree, name: str = "sglang@1.0", adapters: str = "sglang.kernels") -> None:
        lines = [f'[[baseline]]\nname = "{name}"\ntree = "{trees[0].name}"\nadapters = "{adapters}"\n']
        for tree in trees:
            wheel = tree.wheels[0]
            lines.append(
                textwrap.dedent(f"""
                [[tree]]
                name = "{tree.name}"
                wheels = [{{ file = "{wheel.file}", sha256 = "{wheel.sha256}" }}]
                keep = {list(tree.keep)}
                digest = "{tree.digest}"
                bytes = {tree.bytes}
                """)
            )
        path = tmp_path / "lock.toml"
        path.write_text("\n".join(lines))
        monkeypatch.setattr(lock, "LOCK", path)
        monkeypatch.setenv(store.VARIABLE, str(tmp_path / "store"))

    return write
