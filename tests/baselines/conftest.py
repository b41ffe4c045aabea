"""A lock file and a store of the tests' own."""

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
    """Puts another lock file in place of the package's, and an empty store in place of the user's."""

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
