"""Finding: the result of one check of the doctor."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

# `warning`: works, with a limit. `missing`: not installed; only some commands need it. `problem`: broken, or it
# prevents work that this machine could do.
Status = Literal["ok", "warning", "missing", "problem"]
USABLE: tuple[Status, ...] = ("ok", "warning")


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The result of one check. Every status except `ok` has a cause and a remedy.

    Attributes:
        check: name of the check, by which `--require` refers to it.
        found: the facts in a few words.
        details: the same facts for programs.
    """

    check: str
    status: Status
    found: str
    cause: str = ""
    remedy: str = ""
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def is_usable(self) -> bool:
        return self.status in USABLE

    def as_json(self) -> dict[str, Any]:
        return asdict(self)
