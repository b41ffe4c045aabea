"""Files of captured reports, by label."""

from __future__ import annotations

import os
import re
import secrets
from datetime import UTC, datetime
from pathlib import Path

from kernwright.core.errors import EnvironmentProblem, KernwrightError
from kernwright.ledger.files import make_folder

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")


def default_report_root() -> Path:
    """Return $KERNWRIGHT_NCU, or ``.kernwright/ncu`` below the working directory."""
    configured = os.environ.get("KERNWRIGHT_NCU")
    return Path(configured).expanduser() if configured else Path.cwd() / ".kernwright" / "ncu"


def report_path(label: str, what: str, root: Path | None = None) -> Path:
    """Return a new path for a report, ``<root>/<label>/<time>-<what>-<id>.ncu-rep``, and make its folder.

    Args:
        what: what is profiled; characters that a file name cannot have are replaced.
    """
    if not _NAME.fullmatch(label):
        raise KernwrightError(f"label {label!r} cannot name a folder", "use letters, digits, dots, dashes, underscores")
    folder = (root or default_report_root()) / label
    try:
        make_folder(folder.absolute())
    except OSError as error:
        raise EnvironmentProblem(
            f"{folder} cannot be made: {error.strerror or error}", "choose a writable folder with KERNWRIGHT_NCU"
        ) from None
    time = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    plain = re.sub(r"[^A-Za-z0-9._+-]+", "-", what).strip("-")[:80] or "program"
    return folder.absolute() / f"{time}-{plain}-{secrets.token_hex(2)}.ncu-rep"
