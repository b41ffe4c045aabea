"""What a side's worker finds and leaves in its scratch folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernwright.judge.sides import baseline_side
from kernwright.judge.worker_process import BUILD_DEADLINE_S, WorkerProcess
from kernwright.tasks.baseline import Baseline
from kernwright.tasks.task import load_task


@pytest.mark.parametrize(("kind", "compiled"), [("package", ["helper"]), ("adapter", [])])
def test_a_packages_bytecode_stays_in_its_workers_scratch(
    kind: str, compiled: list[str], tmp_path: Path, tiny_folder: Path
) -> None:
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "helper.py").write_text("")
    (sources / "adapters.py").write_text("import helper\n\ndef axpy(op):\n    return print\n")
    baseline = Baseline(name="b", kind=kind, package="p", version="1")  # type: ignore[arg-type]
    side = baseline_side(baseline, load_task(tiny_folder), tmp_path / "side")
    orders = {"kind": "adapter", "file": str(sources / "adapters.py"), "function": "axpy", "op": "axpy"}
    worker = WorkerProcess("baseline", side.scratch, 1, None, side.environment, [sources])
    try:
        worker.wait_ready()
        worker.request({"do": "load", "side": orders}, BUILD_DEADLINE_S)
        left = side.scratch.glob(f"bytecode{sources}/*.pyc")
        assert [path.name.partition(".")[0] for path in left if path.name.startswith("helper")] == compiled
        assert not list(sources.rglob("*.pyc"))
    finally:
        worker.kill()
