"""Round record: how a ledger stores the quads of a round, and how they are read again.

Pairs that are judged together share the quads of a round. The ledger stores each quad once, in a blob that all their
runs name. The ``round`` record of a run says which sides and which quads belong to its pair.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernwright.judge.record.sample import Quad, Role, Sample, SideName
from kernwright.judge.record.verdict import Verdict
from kernwright.ledger.ledger import Ledger
from kernwright.ledger.record import Record


@dataclass
class RoundQuads:
    """The quads of one round by row, each once, in the order in which they were measured."""

    rows: dict[str, list[Quad]] = field(default_factory=dict)

    def add(self, row: str, samples: Iterable[Sample]) -> None:
        known = self.rows.setdefault(row, [])
        known += [sample.quad for sample in samples if sample.quad is not None and sample.quad not in known]

    def blob(self) -> bytes:
        stored = {row: [quad.stored() for quad in quads] for row, quads in self.rows.items()}
        return json.dumps(stored, separators=(",", ":")).encode()

    def body(
        self, number: int, blob: str, roles: Mapping[SideName, Role], samples: Mapping[str, Sequence[Sample]]
    ) -> dict[str, Any]:
        """Return the body of one pair's ``round`` record: its sides, and the indices of its quads by row."""
        longer = {
            row: {sample.metric: sample.longer for sample in own if sample.longer != 1.0}
            for row, own in samples.items()
        }
        return {
            "round": number,
            "samples": f"blob:{blob}",
            "sides": {role: side for side, role in roles.items()},
            "quads": {
                row: [self.rows[row].index(sample.quad) for sample in own if sample.quad is not None]
                for row, own in samples.items()
            },
            "longer": {row: by_metric for row, by_metric in longer.items() if by_metric},
        }


def recorded_samples(ledger: Ledger, records: Sequence[Record], verdict: Verdict) -> dict[str, list[Sample]]:
    """Return the samples of a verdict by row, from the records of its run.

    Verdicts of schema 1 name a blob with all samples of their pair, and so did the rounds of their runs.
    """
    blobs = list(dict.fromkeys(row.samples for row in verdict.rows if row.samples))
    found: dict[str, list[Sample]] = {}
    for blob in blobs:
        for row, stored in _content(ledger, blob).items():
            found.setdefault(row, []).extend(Sample(**sample) for sample in stored)
    if blobs:
        return found
    for record in records:
        if record.kind == "round" and "sides" in record.body:
            for row, samples in _samples_of_round(record.body, _content(ledger, record.body["samples"])).items():
                found.setdefault(row, []).extend(samples)
    return found


def _content(ledger: Ledger, blob: str) -> dict[str, list[dict[str, Any]]]:
    return dict(json.loads(ledger.blobs.read(blob.removeprefix("blob:"))))


def _samples_of_round(
    body: Mapping[str, Any], content: Mapping[str, Sequence[Mapping[str, Any]]]
) -> dict[str, list[Sample]]:
    roles: dict[SideName, Role] = {side: role for role, side in body["sides"].items()}
    found: dict[str, list[Sample]] = {}
    for row, indices in body["quads"].items():
        longer = body["longer"].get(row, {})
        quads = [Quad.from_stored(content[row][index]) for index in indices]
        found[row] = [quad.of(roles, longer.get(quad.metric, 1.0)) for quad in quads]
    return found
