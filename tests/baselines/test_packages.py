"""The real packages: every wheel matches the lock, and every function that an adapter names exists."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kernwright.baselines.lock import read_lock
from kernwright.baselines.published import PublishedBaseline
from kernwright.packages.download import WheelSource
from kernwright.packages.store import Store
from kernwright.packages.tree import Machine

pytestmark = [pytest.mark.network, pytest.mark.slow]

# norm_triton needs a CUDA device to be imported, and CuTe-DSL exists for x86-64 only. GPU tests cover both.
ON_A_GPU = ("norm_infer", "rms_norm_fn", "cutedsl")
PROGRAM = """
import importlib, inspect, json, sys
from kernwright.baselines.loading import _open_paths
from pathlib import Path

tree, paths, wanted = json.loads(sys.argv[1])
_open_paths(Path(tree), paths)
for name, file in wanted:
    module, _, attribute = name.partition(":")
    function = inspect.unwrap(getattr(importlib.import_module(module), attribute))
    # One that is registered with torch no longer says where it stands.
    found = str(Path(inspect.getfile(function)).relative_to(tree)) if inspect.isfunction(function) else file
    print(json.dumps([name, found, file]))
"""


@pytest.mark.parametrize("name", read_lock().names())
def test_functions_are_where_the_adapters_say(name: str, tmp_path: Path) -> None:
    published, store = PublishedBaseline.find(name), Store(tmp_path)
    for tree in published.trees([], Machine.this()):
        store.fetch(tree, WheelSource(), lambda _: None)
    orders, _ = published.orders([], store)
    wanted = [
        (function, adapter.file)
        for adapter in published.table.adapters.values()
        for function in adapter.functions[:1]
        if not adapter.needs and not any(word in function for word in ON_A_GPU)
    ]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps([orders["tree"], orders["paths"], wanted])],
        capture_output=True, text=True, timeout=200, check=False, env={"TRITON_INTERPRET": "1", "PATH": "/usr/bin:/bin",
        "PYTHONPATH": str(Path(__file__).parents[2] / "src"), "HOME": str(tmp_path)},
    )  # fmt: skip
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == len(wanted), done.stderr
    if not name.startswith("liger"):  # liger defines its functional module before its kernels
        assert [entry for entry in found if entry[1] != entry[2]] == []
