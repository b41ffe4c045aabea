"""Recorded verdicts: the only place where records of a ledger are parsed into verdicts.

A record keeps the digests that it was written with. When it is read, digests of an earlier scheme are replaced by the
current digest of the same code, so that all readers compare digests of one scheme.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from kernwright.core.digest_aliases import ALIASES_FILE, DigestAliases
from kernwright.core.errors import LedgerError
from kernwright.judge.record.verdict import Verdict
from kernwright.ledger.ledger import Ledger


@dataclass(frozen=True)
class RecordedBody:
    """The body of one record with current digests, and the run that holds the record."""

    run: str
    kind: str
    body: Mapping[str, Any]

    def verdict(self) -> Verdict:
        """Return the body as a verdict."""
        try:
            return Verdict.model_validate(self.body)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(map(str, first["loc"]))
            raise LedgerError(
                f"the verdict of run {self.run} cannot be read: {place}: {first['msg']}",
                "read it with the version of Kernwright that wrote it",
            ) from error


def recorded_bodies(
    ledger: Ledger, kinds: Collection[str] = ("verdict",), runs: Collection[str] | None = None
) -> Iterator[RecordedBody]:
    """Yield the records of these kinds, of all runs or of ``runs``, oldest run first."""
    aliases = DigestAliases.load(ledger.beside(ALIASES_FILE))
    for run in ledger.runs() if runs is None else runs:
        for record in ledger.records(run):
            if record.kind in kinds:
                yield RecordedBody(run, record.kind, aliases.apply(record.body))
