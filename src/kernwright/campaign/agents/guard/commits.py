"""Read files of commits, without a hook and without a program of the repository's configuration."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from kernwright.core.errors import EnvironmentProblem

_QUIET = ("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false")


def committed(worktree: Path, path: Path, commit: str = "HEAD") -> bytes | None:
    """Return the content of a file of the worktree in a commit; None if the commit has no such file."""
    return git_output(worktree, "cat-file", "blob", f"{commit}:{path.relative_to(worktree).as_posix()}")


def git_output(worktree: Path, *words: str) -> bytes | None:
    """Return the output of a git command; None if it failed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        ended = subprocess.run(
            ["git", *_QUIET, "-C", str(worktree), *words],
            capture_output=True, env=environment | {"GIT_NO_LAZY_FETCH": "1"}, check=False,
        )  # fmt: skip
    except FileNotFoundError:
        raise EnvironmentProblem("git is not installed", "install git") from None
    return ended.stdout if ended.returncode == 0 else None
