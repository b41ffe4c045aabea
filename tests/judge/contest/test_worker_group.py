"""The content of a worker's scratch folder, before and after it runs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from kernwright.baselines.lookup import find_baseline
from kernwright.judge.contest.compiled_files import CompiledFiles
from kernwright.judge.contest.compiled_store import VARIABLE, CompiledStore
from kernwright.judge.contest.worker_group import WorkerGroup
from kernwright.judge.contest.worker_spec import WorkerSpec, baseline_spec
from kernwright.judge.device.cpu import CpuDevice
from kernwright.judge.process.worker_process import BUILD_DEADLINE_S, WorkerProcess
from kernwright.judge.protocol.isolation import Isolation
from kernwright.judge.protocol.messages import Done, Load
from kernwright.judge.protocol.orders import SideOrders
from kernwright.judge.record.sample import SideName
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
    baseline = Baseline(name="sglang@0.5.23", kind=kind, package="p", version="1")  # type: ignore[arg-type]
    side = baseline_spec(baseline, load_task(tiny_folder), tmp_path / "side")
    orders = SideOrders(kind="adapter", file=str(sources / "adapters.py"), function="axpy", op="axpy")
    worker = WorkerProcess(
        label="baseline", scratch=side.scratch, threads=1, processor=None, environment=side.environment, reads=[sources]
    )
    try:
        worker.wait_ready()
        worker.request(Load(side=orders), Done, BUILD_DEADLINE_S)
        left = side.scratch.glob(f"bytecode{sources}/*.pyc")
        assert [path.name.partition(".")[0] for path in left if path.name.startswith("helper")] == compiled
        assert not list(sources.rglob("*.pyc"))
    finally:
        worker.kill()


@pytest.mark.parametrize(
    ("device", "caches"),
    [("cuda", {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}), ("cpu", {})],
)
def test_what_is_compiled_for_a_gpu_has_one_path_in_every_worker(
    device: str, caches: dict[str, str], tmp_path: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inductor's files contain this path, and later judgements put them into their own scratch folders. If nothing is
    kept, each worker has its own path: Inductor's C++ compiler is in another folder then and finds nothing by that
    path."""
    task = load_task(tiny_folder)
    assert baseline_spec(find_baseline(task, "compile"), task, tmp_path / "unkept", device).environment == {}
    monkeypatch.setenv(VARIABLE, str(tmp_path / "compiled"))
    side = baseline_spec(find_baseline(task, "compile"), task, tmp_path / "side", device)
    assert side.environment == {name: f"/proc/self/cwd/{folder}" for name, folder in caches.items()}
    assert baseline_spec(find_baseline(task, "eager"), task, tmp_path / "eager", device).environment == {}


def test_only_sides_with_a_worker_leave_compiled_files(
    tmp_path: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twin of a decided pair had no worker in this round. Its baseline left its files in an earlier one."""
    monkeypatch.setattr(WorkerGroup, "keeps_files_apart", True)
    kept: list[tuple[Path, bool]] = []
    monkeypatch.setattr(CompiledFiles, "lay_out", lambda self, chosen: None)
    monkeypatch.setattr(CompiledFiles, "keep", lambda self, chosen: kept.append((self.scratch, chosen)))
    task = load_task(tiny_folder)
    names: tuple[SideName, ...] = ("baseline", "again", "baseline-2", "again-2")
    sides = {name: baseline_spec(find_baseline(task, "eager"), task, tmp_path / name) for name in names}
    for side in sides.values():
        side.compiled = CompiledFiles(scratch=side.scratch, facts={}, store=CompiledStore(tmp_path / "store"))
    group = WorkerGroup(sides, 1, CpuDevice(), needed=("baseline", "again"))
    group.dismiss()
    group.keep_compiled(twins={"again"})
    group.pinned = False  # as if others were verified at the same time
    group.keep_compiled(twins={"again"})
    assert kept == [(sides["baseline"].scratch, True), (sides["baseline"].scratch, False)]


def test_choices_of_tritons_autotuner_are_kept_among_trusted_sides_alone(
    tmp_path: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it were kept, every later candidate would gain from a measurement that another side disturbed."""
    given: dict[str, str | None] = {}

    class Worker:
        def __init__(self, label: str, environment: dict[str, str], **_: Any) -> None:
            given[label] = environment.get("TRITON_CACHE_AUTOTUNING")

        wait_ready = kill = lambda self: None
        isolation: ClassVar[Isolation] = Isolation()

    monkeypatch.setattr("kernwright.judge.contest.worker_group.WorkerProcess", Worker)
    task = load_task(tiny_folder)
    trusted = {name: baseline_spec(find_baseline(task, "eager"), task, tmp_path / name) for name in ("one", "two")}
    stranger = WorkerSpec(tmp_path / "three", SideOrders(kind="candidate"))
    for sides, pinned, expected in (
        (trusted, True, {"one": "1", "two": "1"}),
        (trusted, False, {"one": None, "two": None}),
        (trusted | {"three": stranger}, True, {"one": None, "two": None, "three": None}),
    ):
        given.clear()
        WorkerGroup(sides, 1, CpuDevice(), pinned=pinned)
        assert given == expected


SLOW = """
import json, os, time

def slow(op):
    note("loads")

    def axpy(x, w, *, alpha=2.0):
        note("calls")
        return alpha * x + w

    return axpy


def note(what):
    here = {"began": time.monotonic(), "processors": sorted(os.sched_getaffinity(0))}
    time.sleep(1.0)  # a busy machine may take a while to let the other one begin
    with open(os.path.join(os.environ["HOME"], what), "a") as file:
        print(json.dumps(here | {"ended": time.monotonic()}), file=file)
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one processor")
def test_baselines_rehearse_side_by_side_and_are_back_on_their_processor(
    tmp_path: Path, write_task: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernwright.judge.contest.worker_group.SPARE_PROCESSORS", 2)
    folder = write_task(tmp_path / "tiny")
    (folder / "baselines.py").write_text(SLOW)
    task = load_task(folder)
    device, baseline = CpuDevice(), find_baseline(task, "slow")
    row = next(row for row in task.rows if row.op == "axpy")
    names: tuple[SideName, ...] = ("baseline", "again")
    sides: dict[SideName, WorkerSpec] = {name: baseline_spec(baseline, task, tmp_path / name) for name in names}
    group = WorkerGroup(sides, 1, device)
    try:
        pool = device.pool(row, 1)
        group.rehearse(task.op_of(row), row, pool, settled=False, among=names)
        assert not (sides["again"].scratch / "loads").exists(), "it compiles nothing anew"
        for side in sides.values():
            side.compiles_anew = frozenset({"axpy"})
        with monkeypatch.context() as patch:
            patch.setattr(sides["again"], "orders", SideOrders(kind="compile"))
            group.rehearse(task.op_of(row), row, pool, settled=False, among=names)
            assert not (sides["again"].scratch / "loads").exists(), "it has to choose by measuring, alone"
        group.rehearse(task.op_of(row), row, pool, settled=False, among=names)
        for what in ("loads", "calls"):
            both = [json.loads((side.scratch / what).read_text()) for side in sides.values()]
            assert max(one["began"] for one in both) < min(one["ended"] for one in both), what
            assert all(len(one["processors"]) > 1 for one in both), what
        for worker in group.workers.values():
            assert {frozenset(own) for own in worker._affinities()} == {frozenset({device.worker_processor()})}
    finally:
        group.dismiss()
