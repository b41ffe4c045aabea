"""CurrentBaselines: whether a record was judged against the baselines of today."""

from __future__ import annotations

from collections.abc import Sequence

from kernwright.baselines.lookup import Surroundings, find_baseline
from kernwright.core.errors import KernwrightError
from kernwright.judge.record.verdict import Verdict
from kernwright.tasks.task import Task


class CurrentBaselines:
    """The digests of the baselines of some tasks, resolved for the machine of each verdict."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._tasks = {task.name: task for task in tasks}
        self._digests: dict[tuple[str, str, Surroundings], str | None] = {}

    def hold(self, verdict: Verdict) -> bool:
        """Return whether a verdict's baseline is unchanged in adapter, wheel and companions.

        The digest is resolved for the machine of the record: another torch on this machine does not make it stale.
        """
        return verdict.baseline_digest == self._digest_for(verdict, verdict.baseline)

    def hold_contender(self, verdict: Verdict) -> bool:
        """Return whether a baseline that was judged as a contender is unchanged."""
        return verdict.candidate_digest == self._digest_for(verdict, verdict.candidate)

    def _digest_for(self, verdict: Verdict, baseline: str) -> str | None:
        key = verdict.task, baseline, Surroundings.recorded(verdict.provenance)
        if key not in self._digests:
            self._digests[key] = self._found(*key)
        return self._digests[key]

    def _found(self, task: str, baseline: str, where: Surroundings) -> str | None:
        try:
            return find_baseline(self._tasks[task], baseline, where).digest
        except KernwrightError:  # no baseline has this name any more
            return None
