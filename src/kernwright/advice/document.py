"""JudgedDocument: the JSON of `kernwright judge --json`, a verdict with what a program should do next."""

from __future__ import annotations

from typing import Self

from pydantic import Field

from kernwright.advice.advice import Advice
from kernwright.judge.record.verdict import Verdict
from kernwright.service.messages import ServedBy


class JudgedDocument(Verdict):
    """A verdict, the advice after it, and the server that made it. The ledger keeps only the verdict."""

    next: Advice
    served: ServedBy | None = Field(default=None, description="the server of a served judgement")

    @classmethod
    def of(cls, verdict: Verdict, advice: Advice, served: ServedBy | None = None) -> Self:
        """Return the document of a verdict."""
        fields = {name: getattr(verdict, name) for name in Verdict.model_fields}
        return cls(**fields, next=advice, served=served)
