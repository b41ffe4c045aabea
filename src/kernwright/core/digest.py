"""Digests, computed here and trusted everywhere."""

from __future__ import annotations

import ast
import hashlib
import io
import json
import re
import tokenize
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

C_SOURCES = (".c", ".cc", ".cpp", ".cu", ".cuh", ".h")
# A comment, or what may hold the signs of one. A quote between digits begins no character.
_C_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])+'", re.DOTALL)


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


def code_digest(files: Mapping[str, bytes]) -> str:
    """Digest of sources by relative path, of what a compiler sees of them: what a kernel's comment says of it may be
    measured later, and leaves it what it was."""
    return digest_of({name: code_text(name, data.decode()) for name, data in files.items()})


@lru_cache(maxsize=512)  # the same files belong to many ops
def code_text(name: str, text: str) -> str:
    """A source without comments, docstrings and blank lines; of what is neither Python nor C, all of it."""
    if name.endswith(".py"):
        text = _without_words(text)
    elif name.endswith(C_SOURCES):
        text = _C_COMMENT.sub(lambda found: " " if found.group().startswith("/") else found.group(), text)
    return "\n".join(stripped for line in text.splitlines() if (stripped := line.rstrip()))


def _without_words(text: str) -> str:
    """By their places, which every version of Python agrees on; on how it writes a tree down they do not."""
    lines = text.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and type(first.value.value) is str:
                for row in range(first.lineno, (first.end_lineno or first.lineno) + 1):
                    lines[row - 1] = ""
    return "\n".join(lines)
