"""WorkerGroup: the workers that run together in one round."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from kernwright.core.errors import EnvironmentProblem
from kernwright.core.op import Op
from kernwright.judge.contest.faults import AttributedTo, SideFault
from kernwright.judge.contest.pair import Pair
from kernwright.judge.contest.worker_spec import WorkerSpec
from kernwright.judge.device.device import Device
from kernwright.judge.numerics.contents import Pool
from kernwright.judge.process.faults import WorkerFailed, WorkerFault
from kernwright.judge.process.worker_process import BUILD_DEADLINE_S, WorkerProcess
from kernwright.judge.protocol.isolation import SHARED_FILES
from kernwright.judge.protocol.messages import Done, Load, Rehearse, Request
from kernwright.judge.record.sample import SideName
from kernwright.judge.session.session import Session
from kernwright.judge.system.processors import SPARE_PROCESSORS
from kernwright.tasks.workload import Workload


class NotLoaded(WorkerFailed):
    """The side cannot be loaded, so none of its rows can be judged."""


class WorkerGroup:
    """The workers of one round: baselines, their twins, contenders. A failed worker can be replaced.

    `needed` are the sides to start, all by default. Untimed workers need not be `pinned`: several judges would share
    the same processor, and their compilers would wait for each other.
    """

    def __init__(
        self,
        specs: dict[SideName, WorkerSpec],
        threads: int,
        device: Device,
        needed: Collection[SideName] | None = None,
        pinned: bool = True,
    ) -> None:
        self.specs, self.threads, self.device, self.pinned = specs, threads, device, pinned
        self.workers: dict[SideName, WorkerProcess] = {}
        self._loaded: dict[SideName, str] = {}
        # The same modules for all workers in every round, so that one zygote forks them all.
        self._preloads = sorted({module for spec in specs.values() for module in spec.preloads(device.name)})
        self.spawn(*(specs if needed is None else needed))

    def spawn(self, *names: SideName) -> None:
        try:
            self._spawn(names)
        except BaseException as failed:
            self.dismiss()
            if isinstance(failed, WorkerFault):  # no code of a side has run in it yet
                raise EnvironmentProblem(
                    f"a worker cannot start: {failed}", "check that this Python can import torch"
                ) from None
            raise

    def _spawn(self, names: Sequence[SideName]) -> None:
        """Start workers concurrently, because most of a start is the import of torch."""
        for name in names:
            self._loaded.pop(name, None)
            spec = self.specs[name]
            environment = self.device.environment() | spec.environment | self._writing_choices_down()
            self.workers[name] = WorkerProcess(
                label=name,
                scratch=spec.scratch,
                threads=self.threads,
                processor=self.device.worker_processor() if self.pinned else None,
                environment=environment,
                reads=(*spec.reads, *self.device.reads()),
                device=self.device.name,
                keepalive=self.device.keepalive,
                preloads=self._preloads,
                roams=spec.is_baseline,
                block_loop=self.device.block_loop,
                output=spec.output,
            )
        for name in names:
            self.workers[name].wait_ready()
            self.device.attach_worker(self.workers[name])
        for name in names:
            if (compiled := self.specs[name].compiled) and self.keeps_files_apart:
                compiled.lay_out(chosen=self.is_among_trusted)

    @property
    def keeps_files_apart(self) -> bool:
        """Return whether no side can write files that another reads. Only then may files outlive the workers."""
        return all(worker.isolation.file_system != SHARED_FILES for worker in self.workers.values())

    @property
    def is_among_trusted(self) -> bool:
        """Return whether no untrusted side and no other judge can disturb a compiler that chooses by timing."""
        return self.pinned and all(spec.is_baseline for spec in self.specs.values())

    def _writing_choices_down(self) -> dict[str, str]:
        """Let Triton keep its autotuning results; otherwise every round would tune again."""
        return {"TRITON_CACHE_AUTOTUNING": "1"} if self.is_among_trusted else {}

    def hand_on_compiled(self, pair: Pair) -> None:
        """Give a baseline's twin the files that the baseline has compiled."""
        made, twin = (self.specs[name].compiled for name in pair.baselines)
        if made and twin and self.keeps_files_apart:
            made.hand_on(twin)

    def keep_compiled(self, twins: Collection[SideName]) -> None:
        """Store what the trusted sides compiled, for the next judgement. Call this after the workers have ended."""
        for name in self.workers:
            if name not in twins and (compiled := self.specs[name].compiled) and self.keeps_files_apart:
                compiled.keep(chosen=self.is_among_trusted)

    def discard_compiled(self, pair: Pair) -> None:
        """Drop the compiled files of a baseline that failed."""
        for name in pair.baselines:
            if compiled := self.specs[name].compiled:
                compiled.discard()

    def about_compiled(self, pair: Pair) -> dict[str, Any]:
        """Return the record of reused files, by role."""
        found = {role: self.specs[name].compiled for name, role in pair.roles.items()}
        return {role: compiled.about() for role, compiled in found.items() if compiled and compiled.found}

    def worker(self, name: SideName, op: str) -> WorkerProcess:
        """Return the side's worker with the op loaded. The first use builds it."""
        worker = self.workers[name]
        if self._loaded.get(name) != op:
            try:
                worker.request(self._load_order(name, op), Done, BUILD_DEADLINE_S)
            except WorkerFailed as failed:
                raise NotLoaded(str(failed), failed.kind) from failed
            self._loaded[name] = op
        return worker

    def _load_order(self, name: SideName, op: str) -> Load:
        return Load(side=self.specs[name].orders.for_op(op))

    def open(self, name: SideName, op: Op, row: Workload, slots: int) -> Session:
        """Open a session of a side on a row."""
        with AttributedTo(name):
            return self.device.open_session(self.worker(name, op.name), op, row, "returns", slots)

    def rehearse(self, op: Op, row: Workload, pool: Pool, settled: bool, among: Collection[SideName]) -> None:
        """Load baselines and make their compiling first calls concurrently, if there are enough processors.

        Those calls take longer than everything that is timed. A failure here is ignored, since the call fails again
        later. `settled` means that each side has made such a call in an earlier round. torch.compile tunes by timing in
        its first call and must run alone then; later it finds its choice.
        """
        specs = [(name, self.specs[name]) for name in among if op.name in self.specs[name].compiles_anew]
        names = [name for name, spec in specs if settled or spec.orders.kind != "compile"]
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
                with AttributedTo(name):
                    session.prepare()
                session.fill(0, pool.draw(op, row))
            faults = self._together(dict.fromkeys(names, Rehearse(slot=0)))
        for name, fault in faults.items():
            if not (isinstance(fault, WorkerFailed) and fault.kind):  # the worker itself failed, not the call
                raise SideFault(name, fault) from fault

    def _together(self, requests: Mapping[SideName, Request]) -> dict[SideName, WorkerFault]:
        """Send untimed requests to all workers at once and wait for every answer."""
        faults: dict[SideName, WorkerFault] = {}
        for name, message in requests.items():
            try:
                self.workers[name].ask(message)
            except WorkerFault as cause:
                faults[name] = cause
        for name in requests.keys() - faults.keys():
            try:
                self.workers[name].answer(Done, BUILD_DEADLINE_S)
            except WorkerFault as cause:
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
        self.device.detach_worker(self.workers[name])

    def dismiss(self) -> None:
        for worker in self.workers.values():
            worker.process.kill()  # all at once, because a process with a GPU context ends slowly
        for name in self.workers:
            self._end(name)
