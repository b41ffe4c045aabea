"""Digest aliases: pairs of digests of the same code, by an earlier digest rule and by the present one.

A record keeps the digests that it was written with, since its hash chain covers them. When the rule changes, a file
next to the ledger names the pairs that belong together, computed for the same code by both rules.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernwright.core.errors import BadFile

ALIASES_FILE = "digests.json"
_FIELDS = ("task_digest", "baseline_digest", "candidate_digest")


@dataclass(frozen=True)
class DigestAliases:
    """The present digest for each earlier one."""

    present: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> DigestAliases:
        """Read the pairs of a file; none where there is no file."""
        try:
            return cls(dict(json.loads(path.read_text(encoding="utf-8"))["same"]))
        except FileNotFoundError:
            return cls()
        except (ValueError, KeyError, TypeError) as error:
            raise BadFile(path, "", f"has no pairs of digests under `same`: {error!r}", "restore it") from None

    def apply(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the body of a record with the present digests in place of earlier ones."""
        found = {name: self.present.get(body[name], body[name]) for name in _FIELDS if name in body}
        return {**body, **found}
