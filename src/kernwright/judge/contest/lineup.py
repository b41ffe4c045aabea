"""Lineup: the contestants of a judgement, their pairs, and the rows to judge."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from kernwright.core.errors import KernwrightError
from kernwright.judge.contest.compiled_files import CompiledFiles
from kernwright.judge.contest.contestant import Contestant
from kernwright.judge.contest.pair import Pair, pairs_of
from kernwright.judge.contest.shipped_build import ShippedBuild, find_shipped_build, implemented, target_of
from kernwright.judge.contest.worker_spec import WorkerSpec, baseline_spec, candidate_spec, shipped_spec
from kernwright.judge.device.device import Device
from kernwright.judge.judge_request import JudgeRequest
from kernwright.judge.record.provenance import Provenance, command_line, judge_digest, library_versions, source_hashes
from kernwright.judge.record.sample import SideName
from kernwright.tasks.candidate import Candidate
from kernwright.tasks.policy import TimingPolicy
from kernwright.tasks.task import Task
from kernwright.tasks.workload import Workload

Match = tuple[Contestant, Contestant]  # a baseline and a contender


@dataclass
class Lineup:
    """One pair or several. `chosen` are the requested rows, `rows` those whose op has an implementation to judge.

    An untrusted contender (a candidate or the shipped ops) must be the only contender: faults of several could not be
    told apart, and no other contender is timed next to foreign code.
    """

    task: Task
    matches: Sequence[Match]
    candidate: Candidate | None
    chosen: Sequence[Workload]
    device: Device
    rows: tuple[Workload, ...] = ()
    ready: ShippedBuild | None = None
    pairs: list[Pair] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._refuse_company()
        self.rows = tuple(self.chosen)
        if shipped := self.matches[0][1].shipped:
            self.ready = find_shipped_build(shipped.ops, target_of(self.device.name, self.device.capability))
            self.rows = implemented(self.chosen, self.ready)
            # The digest covers only the ops that are judged.
            judged = Contestant.of_contender(shipped.only(row.op for row in self.rows))
            self.matches = [(baseline, judged) for baseline, _ in self.matches]
        self.pairs = pairs_of([(baseline.digest, contender.digest) for baseline, contender in self.matches])

    def _refuse_company(self) -> None:
        keys = [(baseline.digest, contender.digest) for baseline, contender in self.matches]
        if len(set(keys)) < len(keys):
            raise KernwrightError("the same pair was requested twice", "request each pair once")
        contenders = {contender.digest: contender for _, contender in self.matches}
        untrusted = next((contender.name for contender in contenders.values() if not contender.trusted), None)
        if untrusted is not None and len(contenders) > 1:
            raise KernwrightError(
                f"{untrusted} cannot be judged together with other contenders",
                "judge it alone, against any number of baselines",
            )

    @cached_property
    def contestants(self) -> dict[SideName, Contestant]:
        return {
            side: contender if role == "candidate" else baseline
            for pair, (baseline, contender) in zip(self.pairs, self.matches, strict=True)
            for side, role in pair.roles.items()
        }

    @cached_property
    def _ops(self) -> dict[SideName, list[str]]:
        return {
            side: contestant.ops(self.task, self.rows, self.device.capability)
            for side, contestant in self.contestants.items()
        }

    def provenances(self, seed: int, policy: TimingPolicy, request: JudgeRequest) -> list[Provenance]:
        """Return the provenance of each pair."""
        hardware, libraries = self.device.describe(), library_versions()
        own_ops = list(dict.fromkeys(row.op for row in self.chosen))
        return [
            Provenance(
                judge=judge_digest(),
                command=command_line() if request.command is None else request.command,
                seed=seed,
                host=platform.node(),
                hardware=hardware,
                libraries=libraries,
                policy=policy.model_dump(),
                sources=source_hashes(self.task, contender.shipped or (None if contender.baseline else self.candidate)),
                baseline=baseline.about(self._ops[pair.baseline]),
                contender=self.ready.about(own_ops) if self.ready else contender.about(self._ops[pair.candidate]),
                together=[_named(match) for match in self.matches if match != (baseline, contender)],
                device=request.device,
            )
            for pair, (baseline, contender) in zip(self.pairs, self.matches, strict=True)
        ]

    def specs(self, scratch: Path, device: str, known: Provenance) -> dict[SideName, WorkerSpec]:
        """Return the worker specification of each side, with the reusable compiled files."""
        specs = {name: self._spec(name, scratch / name, device) for name in self.contestants}
        for name, spec in specs.items():
            spec.compiled = CompiledFiles.of(
                self.contestants[name], self.task.name, spec.scratch, known.hardware, known.libraries
            )
        return specs

    def _spec(self, name: SideName, folder: Path, device: str) -> WorkerSpec:
        if baseline := self.contestants[name].baseline:
            return baseline_spec(baseline, self.task, folder, device, self._ops[name])
        if self.ready:
            return shipped_spec(self.ready, folder)
        assert self.candidate is not None  # the only remaining kind of contestant
        return candidate_spec(self.candidate, folder, device)


def _named(match: Match) -> dict[str, str]:
    baseline, contender = match
    return {"baseline": baseline.name, "candidate": contender.name}
