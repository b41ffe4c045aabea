"""Baseline: the implementation to beat, called in the same style as the candidate."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from kernwright.core.digest import digest_of
from kernwright.core.errors import KernwrightError
from kernwright.core.plain_text import comparable_name, plain
from kernwright.tasks.candidate import SHIPPED

BUILT_IN = ("eager", "compile")


class Baseline(BaseModel):
    """A baseline and everything that it is made of.

    `eager` and `compile` run the op's reference. An `adapter` is a function in the task's baselines.py. A `package` is
    published and pinned in the lock file.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    kind: Literal["eager", "compile", "adapter", "package"]
    package: str
    version: str
    wheel_sha256: str | None = None
    adapter_sha256: str | None = None
    companions: dict[str, str] = Field(
        default_factory=dict, description="hashes of the wheels that a package runs with"
    )

    @property
    def digest(self) -> str:
        """Return the digest of the baseline. Records made before there were companions stay valid."""
        return digest_of(self.model_dump(mode="json", exclude=None if self.companions else {"companions"}))


def adapter_names(path: Path | None) -> list[str]:
    """Return the names of the public functions of a task's baselines.py, without importing it."""
    if path is None:
        return []
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except SyntaxError as error:
        raise KernwrightError(f"{path}: is not valid Python: {error}", "correct the adapters") from None
    names = [n.name for n in tree.body if isinstance(n, ast.FunctionDef) and not n.name.startswith("_")]
    reserved = {comparable_name(name): name for name in (*BUILT_IN, SHIPPED)}
    for name in names:
        if taken := reserved.get(comparable_name(name)):
            raise KernwrightError(
                f"{path}: function {plain(name)} can be taken for {taken}, which has a meaning of its own",
                "rename the function: an adapter has its name",
            )
    return names
