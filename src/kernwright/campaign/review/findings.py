"""The answer of a reviewer, and the state of the reviews of one version."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kernwright.campaign.history import History
from kernwright.campaign.record import IterationEdited, ReviewFinding, ReviewGiven
from kernwright.core.errors import BadFile
from kernwright.core.plain_text import plain

ANSWER_FILE = "findings.json"
MOST_BYTES = 1 << 20


class AnsweredFinding(BaseModel):
    """One finding as a reviewer writes it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    check: str = Field(description="id of an entry of the checklist")
    text: str = Field(min_length=1, description="what is wrong, and what would have to change")
    file: str = ""
    line: int | None = Field(default=None, ge=1)


class ReviewAnswer(BaseModel):
    """findings.json, which a reviewer writes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    decision: Literal["approved", "rejected", "findings"]
    why: str = Field(min_length=1, description="the reason in one or two sentences; what was examined")
    findings: tuple[AnsweredFinding, ...] = ()


def read_answer(path: Path, checks: Sequence[str]) -> ReviewAnswer:
    """Return the answer of a reviewer. Raise BadFile for one that does not follow the schema."""
    remedy = "write an object with decision, why and findings, as README.md in the folder of the review shows"
    try:
        if path.is_symlink() or not path.is_file():
            raise BadFile(path, "", "does not exist" if not path.exists() else "is not a plain file", remedy)
        if path.stat().st_size > MOST_BYTES:
            raise BadFile(path, "", f"has over {MOST_BYTES >> 20} MiB", remedy)
        answer = ReviewAnswer.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise BadFile(path, ".".join(map(str, first["loc"])), first["msg"], remedy) from None
    except (OSError, ValueError, RecursionError) as error:
        raise BadFile(path, "", f"cannot be read: {error}", remedy) from None
    for number, finding in enumerate(answer.findings):
        if finding.check not in checks:
            raise BadFile(
                path, f"findings.{number}.check", f"names {plain(finding.check)!r}, which is no check",
                f"use one of: {', '.join(checks)}",
            )  # fmt: skip
    return answer


@dataclass(frozen=True)
class ReviewState:
    """The reviews of one version of a candidate.

    Attributes:
        digest: the version.
        reviews: its reviews, oldest first, each with the run of the ledger that holds it.
        builders: the runs in which the version was edited.
    """

    digest: str
    reviews: Sequence[tuple[str, ReviewGiven]]
    builders: frozenset[str]

    @classmethod
    def of(cls, history: History, digest: str) -> ReviewState:
        reviews, builders = [], set()
        for entry in history.entries:
            if isinstance(entry.body, ReviewGiven) and entry.body.candidate_digest == digest:
                reviews.append((entry.run, entry.body))
            if isinstance(entry.body, IterationEdited) and entry.body.candidate_digest == digest:
                builders.add(entry.run)
        return cls(digest, reviews, frozenset(builders))

    @property
    def open_findings(self) -> list[ReviewFinding]:
        closed = {each for _, review in self.reviews for each in review.closed}
        return [own for _, review in self.reviews for own in review.findings if own.id not in closed]

    @property
    def decision(self) -> tuple[str, ReviewGiven] | None:
        """Return the last review that decided something. Closing a finding decides nothing."""
        return next((given for given in reversed(self.reviews) if not given[1].closed), None)

    @property
    def obstacle(self) -> str | None:
        """Return why these reviews do not approve the version; None if they do."""
        if (last := self.decision) is None:
            return "no review of this version"
        run, review = last
        if found := self.open_findings:
            return f"open findings: {', '.join(f'{own.id} ({own.check})' for own in found)}"
        if review.decision != "approved":
            why = f": {review.why}" if review.why else ""
            return f"the last review, by {review.reviewer}, is {review.decision}, not approved{why}"
        if run in self.builders:
            return f"the run that edited this version also approved it ({run}): reviewer and builder must differ"
        return None


def numbered(findings: Sequence[AnsweredFinding], history: History) -> tuple[ReviewFinding, ...]:
    """Return findings with ids that the campaign has not used: F1, F2 and so on."""
    used = sum(len(review.findings) for review in history.reviews)
    return tuple(
        ReviewFinding(id=f"F{number}", check=own.check, text=plain(own.text), file=plain(own.file), line=own.line)
        for number, own in enumerate(findings, start=used + 1)
    )
