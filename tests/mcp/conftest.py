"""A root folder with a task on which a good candidate is many times faster, and a server of it over HTTP."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from running_mcp_server import REPEATED_OPS, TESTS, TOKEN, RunningServer


@pytest.fixture(scope="session")
def served_root(
    tmp_path_factory: pytest.TempPathFactory,
    write_task: Callable[..., Path],
    make_row: Callable[..., dict[str, Any]],
    task_texts: dict[str, str],
) -> Path:
    """Return a folder with the task `repeated`, a trace and a report of counters."""
    root = tmp_path_factory.mktemp("served")
    rows = [make_row("r64", "sum_of_64", {"x": ["S", "D"]}, {"y": ["S", "D"]}, axes={"S": 8, "D": 64})]
    toml = task_texts["toml"].replace('"tiny"', '"repeated"').replace("Ops that take microseconds", "Sums of 64 terms")
    write_task(root / "tasks" / "repeated", toml=toml, ops=REPEATED_OPS, rows=rows)
    shutil.copy(TESTS / "diagnose" / "traces" / "llama_eager.json.gz", root / "trace.json.gz")
    return root


@pytest.fixture(scope="session")
def served_environment(private_tmp: Path) -> dict[str, str]:
    """Return the environment of a server, with locks of its own."""
    return {
        **os.environ,
        "KERNWRIGHT_LOCKS": str(private_tmp),
        "KERNWRIGHT_MCP_TOKEN": TOKEN,
        "TMPDIR": str(private_tmp),
    }


@pytest.fixture(scope="session")
def served_repository(tmp_path_factory: pytest.TempPathFactory, served_root: Path) -> Path:
    """Return a git repository with the task `repeated`."""
    folder = tmp_path_factory.mktemp("repository")
    shutil.copytree(served_root / "tasks", folder / "tasks")
    who = ["-c", "user.name=Tests", "-c", "user.email=tests@localhost"]
    for words in (["init", "--quiet"], ["add", "."], [*who, "commit", "--quiet", "-m", "Add a task"]):
        subprocess.run(["git", *words], cwd=folder, check=True)
    return folder


@pytest.fixture(scope="session")
def server(served_root: Path, served_repository: Path, served_environment: dict[str, str]) -> Iterator[RunningServer]:
    process = subprocess.Popen(
        [sys.executable, "-m", "kernwright", "mcp", "--http", "--port", "0", "--root", str(served_root),
         "--root", str(served_repository)],
        cwd=served_root, env=served_environment, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    try:
        said = process.stderr.readline()
        assert "http://127.0.0.1:" in said, said + process.stderr.read()
        yield RunningServer(said.split()[-1], process)
    finally:
        process.terminate()
        process.wait(30)
