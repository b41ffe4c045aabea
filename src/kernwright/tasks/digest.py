"""Digests, computed here and trusted everywhere."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def digest_of(value: Mapping[str, Any]) -> str:
    """Digest of plain data: independent of key order, of the machine and of the Python version."""
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def source_text(path: Path) -> str:
    """A Python file without its blank and comment lines, so that a reworded comment freezes nothing anew."""
    lines = (line.rstrip() for line in path.read_text(encoding="utf-8").splitlines())
    return "\n".join(line for line in lines if line and not line.lstrip().startswith("#"))


def folder_digest(files: Mapping[str, bytes]) -> str:
    """Digest of a folder's files by relative path."""
    return digest_of({name: hashlib.sha256(data).hexdigest() for name, data in files.items()})
