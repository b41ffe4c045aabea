"""Wheels of a few bytes, as real as pip and an unpacker can tell."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest


def recorded(data: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


@pytest.fixture(scope="session")
def write_wheel() -> Callable[..., Path]:
    def write(
        folder: Path,
        name: str,
        version: str = "1.0",
        files: dict[str, str | bytes] | None = None,
        tag: str = "py3-none-any",
        record: dict[str, str] | None = None,
    ) -> Path:
        """A wheel of ``files``; ``record`` overrides what its RECORD says of a file."""
        module = name.replace("-", "_").lower()
        info = f"{module}-{version}.dist-info"
        held = {
            key: value if isinstance(value, bytes) else value.encode()
            for key, value in (files if files is not None else {f"{module}/__init__.py": f"v = {version!r}\n"}).items()
        }
        held[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode()
        held[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n".encode()
        lines = [f'"{key}",{(record or {}).get(key, recorded(data))},{len(data)}' for key, data in held.items()]
        held[f"{info}/RECORD"] = "\n".join([*lines, f"{info}/RECORD,,"]).encode()
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{module}-{version}-{tag}.whl"
        with zipfile.ZipFile(path, "w") as archive:
            for key, data in held.items():
                archive.writestr(key, data)
        return path

    return write
