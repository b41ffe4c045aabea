"""ReviewFolder: what a reviewer gets: the diff, the sources, the verdicts, the counters, and the checklist."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernwright.campaign.best_version import BestVersion
from kernwright.campaign.history import History
from kernwright.campaign.record import Bottleneck
from kernwright.campaign.removal import remove
from kernwright.campaign.review.checklist import Checklist, Lead, leads_in, read_checklist
from kernwright.campaign.review.facts import ReviewFacts
from kernwright.campaign.review.findings import ANSWER_FILE, ReviewAnswer, ReviewState
from kernwright.campaign.version_verdicts import deciding_headline, deciding_result, verdicts_on
from kernwright.judge.record.verdict import Verdict
from kernwright.tasks.catalog import find_task
from kernwright.tasks.task import Task

EXAMPLE = {
    "decision": "findings",
    "why": "read the diff and all sources, compared the sums with the definition",
    "findings": [{"check": "numerics", "text": "the variance is not centred", "file": "kernel.cc", "line": 12}],
}
README = """\
# Review of campaign {name}, version {digest}

Another run made this candidate. You decide whether it may be promoted. Change nothing outside this folder.

- `diff.patch`: the change since the start of the campaign; `candidate/`: all sources of the version
- `definition.py`: what the op computes
- `verdicts.md`, `verdicts.json`: judged figures, row by row
- `counters.md`: hardware counters before and after, if they were captured
- `checklist.md`: the questions, with what the tool itself can show, and leads: lines that are worth a look

Answer every question of the checklist for yourself. Then write `{answer}` into this folder, one JSON object:

```json
{example}
```

`decision` is `approved` (no findings), `findings` (each must be fixed or closed before a promotion) or `rejected`.
`check` is the id of an entry of the checklist: {checks}. `file` and `line` refer to `candidate/` and are optional.
The full schema is in `schema.json`.
"""


@dataclass(frozen=True, kw_only=True)
class ReviewFolder:
    """The folder of a review of one version. Writing it again replaces it."""

    version: BestVersion
    history: History

    @property
    def path(self) -> Path:
        return self.version.campaign.folder / "reviews" / self.version.digest[:16]

    def write(self) -> Path:
        """Write all files and return the path. An earlier answer in the folder is removed."""
        campaign, checklist = self.version.campaign, read_checklist()
        remove(self.path)
        self.path.mkdir(parents=True)
        candidate = self.version.write(self.path / "candidate")
        task = find_task(campaign.settings.task)
        verdicts = verdicts_on(campaign, self.history, self.version.digest)
        facts = ReviewFacts(task=task, candidate=candidate, verdicts=verdicts)
        leads = leads_in(candidate.sources, checklist)
        texts = {
            "README.md": self._readme(checklist),
            "diff.patch": self.version.diff(),
            "definition.py": _definition(task, campaign.settings.op),
            "schema.json": json.dumps(ReviewAnswer.model_json_schema(), indent=1) + "\n",
            "verdicts.md": "\n".join(_verdict_lines(verdicts)) + "\n",
            "verdicts.json": json.dumps([v.model_dump(mode="json", exclude={"provenance"}) for v in verdicts]) + "\n",
            "counters.md": "\n".join(_counter_lines(self.history)) + "\n",
            "checklist.md": "\n".join(_checklist_lines(checklist, facts, leads, self._findings())) + "\n",
            "checklist.json": json.dumps(_as_json(checklist, facts, leads), indent=1) + "\n",
        }
        for name, text in texts.items():
            (self.path / name).write_text(text, encoding="utf-8")
        return self.path

    def _readme(self, checklist: Checklist) -> str:
        return README.format(
            name=self.version.campaign.name, digest=self.version.digest[:16], answer=ANSWER_FILE,
            example=json.dumps(EXAMPLE, indent=1), checks=", ".join(checklist.ids),
        )  # fmt: skip

    def _findings(self) -> list[str]:
        state = ReviewState.of(self.history, self.version.digest)
        return [f"{own.id} ({own.check}): {own.text}" for own in state.open_findings]


def _definition(task: Task, op: str) -> str:
    import inspect

    return inspect.getsource(task.ops[op].reference)


def _verdict_lines(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """Yield the rows of each verdict as a table, in the deciding metric."""
    if not verdicts:
        yield "No evidence on this version is recorded."
    for verdict in verdicts:
        headline = deciding_headline(verdict)
        mean = f", {headline.geomean:.3f}x over {headline.rows} rows" if headline else ""
        yield f"## {verdict.run}: {verdict.verdict} against {verdict.baseline}, {verdict.metric}{mean}\n"
        yield from (f"- {reason}" for reason in verdict.reasons)
        yield "\n| row | verdict | ratio | interval | baseline us | candidate us |\n|---|---|---:|---:|---:|---:|"
        untimed = 0
        for row in verdict.rows:
            if (result := deciding_result(verdict, row)) is None:
                untimed += 1
                continue
            low, high = result.interval
            yield (
                f"| {row.id} | {row.verdict} | {result.ratio:.3f} | {low:.3f} to {high:.3f} "
                f"| {result.baseline_us:.2f} | {result.candidate_us:.2f} |"
            )
        yield f"\n{untimed} rows were checked and not timed.\n"


def _counter_lines(history: History) -> Iterator[str]:
    """Yield the counters of the baseline next to those of the latest profile."""
    before = history.baseline.bottleneck if history.baseline is not None else None
    after = history.profiles[-1].bottleneck if history.profiles else None
    for words, own in (("Before (baseline)", before), ("After (latest profile)", after)):
        yield f"## {words}\n\n{bottleneck_words(own)}\n"
    names = sorted({*(before.counters if before else ()), *(after.counters if after else ())})
    if names:
        yield "| counter | before | after |\n|---|---:|---:|"
    for name in names:
        cells = ("" if own is None or name not in own.counters else f"{own.counters[name]:.6g}"
                 for own in (before, after))  # fmt: skip
        yield f"| {name} | {' | '.join(cells)} |"


def bottleneck_words(own: Bottleneck | None) -> str:
    """Return a bottleneck in one sentence, or the reason why there is none."""
    if own is None:
        return "No profile is recorded."
    if own.unavailable is not None:
        return f"No counters: {own.unavailable}."
    return f"Row {own.row}: {own.bound or 'no bound named'}. {own.summary}"


def _checklist_lines(
    checklist: Checklist, facts: ReviewFacts, leads: Sequence[Lead], findings: Sequence[str]
) -> Iterator[str]:
    if findings:
        yield "Open findings of earlier reviews of this version:\n"
        yield from (f"- {each}" for each in findings)
    for check in checklist.check:
        yield f"\n## {check.title} (`{check.id}`)\n\n{check.question}\n"
        yield from (f"- shown by the tool: {fact}" for fact in facts.on(check.id))
        own = [lead for lead in leads if lead.check == check.id]
        yield from (f"- lead: candidate/{lead.file}:{lead.line}: {lead.what}: `{lead.text}`" for lead in own)
        if not own:
            yield "- no leads in the sources"


def _as_json(checklist: Checklist, facts: ReviewFacts, leads: Sequence[Lead]) -> list[dict[str, Any]]:
    return [
        {
            "id": check.id,
            "title": check.title,
            "question": check.question,
            "facts": facts.on(check.id),
            "leads": [lead.model_dump() for lead in leads if lead.check == check.id],
        }
        for check in checklist.check
    ]
