"""Sides: what the workers of a judgement load, and the crew of them that runs together in a round."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from kernwright.baselines.lock import CUTEDSL
from kernwright.baselines.published import PublishedBaseline
from kernwright.core.errors import EnvironmentProblem
from kernwright.core.op import Op
from kernwright.judge.compiled import Compiled
from kernwright.judge.compiled_store import CompiledStore
from kernwright.judge.confine import SHARED_FILES
from kernwright.judge.contents import Pool
from kernwright.judge.device import Device
from kernwright.judge.pair import Pair, SideName
from kernwright.judge.processors import SPARE_PROCESSORS
from kernwright.judge.provision import Provision
from kernwright.judge.session import Session
from kernwright.judge.timing import SideFault
from kernwright.judge.worker_faults import WorkerCheated, WorkerFailed
from kernwright.judge.worker_process import BUILD_DEADLINE_S, WorkerProcess
from kernwright.packages.store import Store
from kernwright.runtime.library import BUILDS_VARIABLE
from kernwright.tasks.baseline import Baseline
from kernwright.tasks.candidate import Candidate, Style
from kernwright.tasks.task import Task
from kernwright.tasks.workload import Workload


class Side:
    """A baseline or a candidate: its orders to a worker, what the worker reads for them, and a scratch folder."""

    def __init__(
        self,
        folder: Path,
        orders: dict[str, Any],
        environment: dict[str, str] | None = None,
        reads: Sequence[Path] = (),
    ) -> None:
        self.scratch = folder / "scratch"  # the worker's own; what lies beside it is not the worker's to change
        self.orders = orders
        self.environment = environment or {}
        self.reads = tuple(reads)
        self.compiled: Compiled | None = None  # of a side whose compilers' work may serve later workers
        self.compiles_anew: frozenset[str] = frozenset()  # ops whose first call compiles, whatever a cache may hold
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o711)

    @property
    def style(self) -> Style:
        return self.orders["style"]  # type: ignore[no-any-return]

    @property
    def is_baseline(self) -> bool:
        """In whichever place. The ops that ship are none: they are timed like a candidate."""
        return self.orders["kind"] not in ("candidate", "shipped")

    def preloads(self, device: str) -> tuple[str, ...]:
        """Large modules that its worker will import: forked with them in it, each new one starts in a moment.

        None that remembers from its import where it was: a worker has an environment and folders of its own. Triton for
        a CPU remembers whether its interpreter was asked for, and all of torch's compiler imports it. Inductor
        remembers a folder too, but only for what its kernels for a CPU include.
        """
        compiles = self.orders["kind"] == "compile"
        if device == "cpu":
            return ("torch.fx.experimental.symbolic_shapes",) if compiles else ()
        if compiles:
            return "torch._dynamo", "torch._inductor.compile_fx", "triton.language"
        if self.orders["kind"] == "package":  # sglang marks functions for torch's compiler, which imports half of it
            return "torch._dynamo", "triton.language"
        return ("triton.language",) if self.orders.get("language") == "triton" else ()


def baseline_side(baseline: Baseline, task: Task, folder: Path, device: str = "cpu", ops: Sequence[str] = ()) -> Side:
    """`ops`: those that will be asked for, where the baseline is a package. Without any it needs nothing."""
    definitions = str(task.folder / task.file.definitions) if task.file.definitions else None
    orders: dict[str, Any] = {"kind": baseline.kind, "definitions": definitions, "style": "returns"}
    if baseline.kind == "package":
        published = PublishedBaseline.find(baseline.name)
        found, places = published.orders(ops, Store()) if ops else ({}, [])
        environment = _interpreted(device) | _with_bytecode(folder / "scratch")
        side = Side(folder, orders | found, environment, [task.folder, *places])
        side.compiles_anew = frozenset(op for op in ops if published.needs(op, CUTEDSL))
        return side
    if baseline.kind == "adapter":
        orders |= {"file": str(task.adapters), "function": baseline.name}
    kept = baseline.kind == "compile" and device != "cpu" and CompiledStore.here() is not None
    side = Side(folder, orders, _caches_by_one_path() if kept else None, reads=[task.folder])
    if baseline.kind == "compile":
        side.compiles_anew = frozenset(task.ops)  # torch traces it again in every process
    return side


def candidate_side(candidate: Candidate, folder: Path, device: str) -> Side:
    """The worker gets a copy of the bytes that were hashed, so what runs is what the digest names."""
    for name, data in candidate.sources.items():
        copy = folder / "sources" / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(data)
    needs_loop = candidate.file.language == "cpp" and device == "cpu"
    loop = _native_loop(folder.parent / "loop") if needs_loop else None
    reads = [folder / "sources", *([Path(loop).parent] if loop else [])]
    for path in reads:
        _open_to_all(path)
    return Side(
        folder,
        {
            "kind": "candidate",
            "language": candidate.file.language,
            "folder": str(folder / "sources"),
            "file": candidate.entry_file,
            "function": candidate.entry_function,
            "build": candidate.file.build.model_dump(mode="json"),
            "build_folder": str(folder / "scratch" / "build"),
            "style": candidate.style,
            "loop": loop,
        },
        _interpreted(device) if candidate.file.language == "triton" else {},
        reads,
    )


def shipped_side(provision: Provision, folder: Path) -> Side:
    """The ops that ship, as a user calls them. What is built for them is read, and anything else of theirs is built in
    the worker's scratch."""
    builds = provision.laid_out(folder / "builds")
    return Side(folder, {"kind": "shipped", "style": "returns"}, {BUILDS_VARIABLE: str(builds)}, [builds])


def _interpreted(device: str) -> dict[str, str]:
    """Triton has no code for a CPU: its interpreter runs the kernel there, slowly and for correctness alone."""
    return {"TRITON_INTERPRET": "1"} if device == "cpu" else {}


def _caches_by_one_path() -> dict[str, str]:
    """Inductor's files name others by their full paths, where it writes what it measured: kept for a later worker they
    would lead into a folder that is gone. A worker stands in its own scratch, which has one name for all of them.

    Not for whoever stands elsewhere: Inductor's C++ compiler, which a chain needs that computes on the host too."""
    here = "/proc/self/cwd"
    return {"TORCHINDUCTOR_CACHE_DIR": f"{here}/inductor", "TRITON_CACHE_DIR": f"{here}/triton"}


def _with_bytecode(scratch: Path) -> dict[str, str]:
    """Packages come without: CuTe-DSL's alone is a hundred thousand lines, which every worker would compile anew."""
    return {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(scratch / "bytecode")}


def _open_to_all(folder: Path) -> None:
    """Readable, whatever the judge's umask: the worker may be another user."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else path.stat().st_mode | 0o444)


def _native_loop(folder: Path) -> str:
    """The judge's own compiled loop, built once a judgement: it also shows that this machine can build at all."""
    import tvm_ffi.cpp

    source = Path(__file__).with_name("native_loop.cc")
    try:
        return str(tvm_ffi.cpp.build(name="native_loop", cpp_files=[str(source)], build_directory=str(folder)))
    except (RuntimeError, OSError) as error:
        raise EnvironmentProblem(
            f"native code cannot be built here: {str(error).splitlines()[0][:200]}", "install a C++ compiler and ninja"
        ) from None


class NotLoaded(WorkerFailed):
    """The side does not even load: no row of it can be judged."""


class Crew:
    """The workers of one round: baselines, their twins, contenders. Any of them can be replaced when it falls over.

    `needed`: the sides that somebody still waits for; all of them by default. Workers that nobody times need not be
    `pinned`: other judges' stand on the same processor, and each of their compilers would wait for all the others.
    """

    def __init__(
        self,
        sides: dict[SideName, Side],
        threads: int,
        device: Device,
        needed: Collection[SideName] | None = None,
        pinned: bool = True,
    ) -> None:
        self.sides, self.threads, self.device, self.pinned = sides, threads, device, pinned
        self.workers: dict[SideName, WorkerProcess] = {}
        self._loaded: dict[SideName, str] = {}
        # The same for all, and in every round: one process that forks them, and no side has in it what another lacks.
        self._preloads = sorted({module for side in sides.values() for module in side.preloads(device.name)})
        self.spawn(*(sides if needed is None else needed))

    def spawn(self, *names: SideName) -> None:
        try:
            self._spawn(names)
        except BaseException as failed:
            self.dismiss()
            if isinstance(failed, (WorkerFailed, WorkerCheated)):  # before any code of a side's ran in it
                raise EnvironmentProblem(
                    f"a worker cannot start: {failed}", "see that this Python can import torch"
                ) from None
            raise

    def _spawn(self, names: Sequence[SideName]) -> None:
        """Starts workers side by side: most of a start is importing torch."""
        for name in names:
            self._loaded.pop(name, None)
            side = self.sides[name]
            environment = self.device.environment() | side.environment | self._writing_choices_down()
            self.workers[name] = WorkerProcess(
                name,
                side.scratch,
                self.threads,
                self.device.worker_processor() if self.pinned else None,
                environment,
                (*side.reads, *self.device.reads()),
                device=self.device.name,
                vigil=self.device.vigil,
                preloads=self._preloads,
                roams=side.is_baseline,
                block_loop=self.device.block_loop,
            )
        for name in names:
            self.workers[name].wait_ready()
            self.device.furnish(self.workers[name])
        for name in names:
            if (compiled := self.sides[name].compiled) and self.keeps_files_apart:
                compiled.lay_out(chosen=self.is_among_trusted)

    @property
    def keeps_files_apart(self) -> bool:
        """Whether no side can write what another one reads: only then may anything outlast the workers."""
        return all(
            worker.isolation.get("file_system", SHARED_FILES) != SHARED_FILES for worker in self.workers.values()
        )

    @property
    def is_among_trusted(self) -> bool:
        """Whether nobody could have disturbed a compiler that chose by time: neither a side that is not trusted nor,
        where nothing is timed, another judge's."""
        return self.pinned and all(side.is_baseline for side in self.sides.values())

    def _writing_choices_down(self) -> dict[str, str]:
        """Triton forgets what it chose by time, unless it is asked: every round would choose for itself."""
        return {"TRITON_CACHE_AUTOTUNING": "1"} if self.is_among_trusted else {}

    def hand_on_compiled(self, pair: Pair) -> None:
        """A baseline's twin need not compile what the baseline has."""
        made, twin = (self.sides[name].compiled for name in pair.baselines)
        if made and twin and self.keeps_files_apart:
            made.hand_on(twin)

    def keep_compiled(self, twins: Collection[SideName]) -> None:
        """What trusted sides of this crew compiled serves the next judgement. To be called when the workers have
        ended."""
        for name in self.workers:
            if name not in twins and (compiled := self.sides[name].compiled) and self.keeps_files_apart:
                compiled.keep(chosen=self.is_among_trusted)

    def discard_compiled(self, pair: Pair) -> None:
        """A baseline fell over."""
        for name in pair.baselines:
            if compiled := self.sides[name].compiled:
                compiled.discard()

    def about_compiled(self, pair: Pair) -> dict[str, Any]:
        """By role, of the sides that found something."""
        found = {role: self.sides[name].compiled for name, role in pair.roles.items()}
        return {role: compiled.about() for role, compiled in found.items() if compiled and compiled.found}

    def worker(self, name: SideName, op: str) -> WorkerProcess:
        """The side's worker with the op loaded; builds on first use."""
        worker = self.workers[name]
        if self._loaded.get(name) != op:
            try:
                worker.request(self._load_order(name, op), BUILD_DEADLINE_S)
            except WorkerFailed as failed:
                raise NotLoaded(str(failed), failed.kind) from failed
            self._loaded[name] = op
        return worker

    def _load_order(self, name: SideName, op: str) -> dict[str, Any]:
        return {"do": "load", "side": self.sides[name].orders | {"op": op}}

    def open(self, name: SideName, op: Op, row: Workload, slots: int) -> Session:
        """A row before the side's worker."""
        try:
            return self.device.open_session(self.worker(name, op.name), op, row, "returns", slots)
        except (WorkerFailed, WorkerCheated) as cause:
            raise SideFault(name, cause) from cause

    def rehearse(self, op: Op, row: Workload, pool: Pool, settled: bool, among: Collection[SideName]) -> None:
        """Loads baselines and makes their first calls side by side, where those compile what no cache of theirs
        holds: that takes longer than all that is timed. Only where processors abound. A call that fails fails again
        where it is looked at. `settled`: each has made such a call in an earlier round. torch.compile measures in its
        first one what to choose, and must be alone for that; later it finds what it chose."""
        sides = [(name, self.sides[name]) for name in among if op.name in self.sides[name].compiles_anew]
        names = [name for name, side in sides if settled or side.orders["kind"] != "compile"]
        if len(os.sched_getaffinity(0)) < SPARE_PROCESSORS or len(names) < 2:
            return
        unloaded = [name for name in names if self._loaded.get(name) != op.name]
        for name, fault in self._together({name: self._load_order(name, op.name) for name in unloaded}).items():
            raise SideFault(name, fault) from fault
        self._loaded |= dict.fromkeys(unloaded, op.name)
        with contextlib.ExitStack() as opened:
            for name in names:
                session = self.open(name, op, row, 1)
                opened.callback(session.close)
                try:
                    session.prepare()
                except (WorkerFailed, WorkerCheated) as cause:
                    raise SideFault(name, cause) from cause
                session.fill(0, pool.draw(op, row))
            faults = self._together({name: {"do": "rehearse", "slot": 0} for name in names})
        for name, fault in faults.items():
            if not (isinstance(fault, WorkerFailed) and fault.kind):  # not the call: the worker itself is gone
                raise SideFault(name, fault) from fault

    def _together(self, requests: dict[SideName, dict[str, Any]]) -> dict[SideName, WorkerFailed | WorkerCheated]:
        """Untimed exchanges, all at once. Waits for each of them: a worker that has not answered still runs."""
        faults: dict[SideName, WorkerFailed | WorkerCheated] = {}
        for name, message in requests.items():
            try:
                self.workers[name].ask(message)
            except (WorkerFailed, WorkerCheated) as cause:
                faults[name] = cause
        for name in requests.keys() - faults.keys():
            try:
                self.workers[name].answer(BUILD_DEADLINE_S)
            except (WorkerFailed, WorkerCheated) as cause:
                faults[name] = cause
        return faults

    def respawn(self, *names: SideName) -> None:
        self.end(*names)
        self.spawn(*names)

    def end(self, *names: SideName) -> None:
        for name in names:
            self._end(name)

    def _end(self, name: SideName) -> None:
        self.workers[name].kill()
        self.device.retire(self.workers[name])

    def dismiss(self) -> None:
        for worker in self.workers.values():
            worker.process.kill()  # all at once: a GPU's process takes its time to end
        for name in self.workers:
            self._end(name)
