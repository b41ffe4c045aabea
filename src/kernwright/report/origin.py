"""Origin: what must be known of a record before it stands beside others: its machine, and whether its baselines are
still those of their names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kernwright.baselines.lookup import Surroundings, find_baseline
from kernwright.core.errors import KernwrightError
from kernwright.judge.record.verdict import Verdict
from kernwright.tasks.candidate import CANDIDATE_FILE
from kernwright.tasks.task import Task


class TodaysBaselines:
    """The baselines of some tasks as they are now, asked for by verdicts of any machine."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._tasks = {task.name: task for task in tasks}
        self._digests: dict[tuple[str, str, Surroundings], str | None] = {}

    def hold(self, verdict: Verdict) -> bool:
        """Whether what a verdict was judged against has not changed since, in adapter, wheel or companions.

        Where it ran is the record's own: another torch here makes no record of elsewhere an old one.
        """
        return verdict.baseline_digest == self._digest_for(verdict, verdict.baseline)

    def hold_contender(self, verdict: Verdict) -> bool:
        """The same of a baseline that was judged in the candidate's place."""
        return verdict.candidate_digest == self._digest_for(verdict, verdict.candidate)

    def _digest_for(self, verdict: Verdict, baseline: str) -> str | None:
        key = verdict.task, baseline, Surroundings.recorded(verdict.provenance)
        if key not in self._digests:
            self._digests[key] = self._found(*key)
        return self._digests[key]

    def _found(self, task: str, baseline: str, where: Surroundings) -> str | None:
        try:
            return find_baseline(self._tasks[task], baseline, where).digest
        except KernwrightError:  # there is none of that name any more
            return None


def is_of_a_folder(verdict: Verdict) -> bool:
    """Whether somebody's candidate was judged. Its folder may have any name, a baseline's too."""
    return CANDIDATE_FILE in verdict.provenance.get("sources", {})


def model_of(verdict: Verdict) -> str:
    hardware = verdict.provenance["hardware"]
    return str(hardware.get("model", hardware["kind"]))


def gpu_of(verdict: Verdict) -> str:
    """The one that it ran on; its model, where nobody knows more."""
    return str(verdict.provenance["hardware"].get("uuid", model_of(verdict)))


def machines_of(verdicts: Iterable[Verdict]) -> list[str]:
    """Every model and set of libraries that these ran with."""
    found = set()
    for verdict in verdicts:
        libraries = ", ".join(f"{name} {version}" for name, version in verdict.provenance["libraries"].items())
        found.add(f"{model_of(verdict)}: {libraries}")
    return sorted(found)


def refuse_mixed_models(verdicts: Iterable[Verdict]) -> None:
    """Means over rows of several models are of none of them."""
    models = sorted({model_of(verdict) for verdict in verdicts})
    if len(models) > 1:
        raise KernwrightError(
            f"the ledger's records are of {len(models)} models: {', '.join(models)}",
            f"name the one that the pages are to be of: --model {models[0]!r}",
        )
