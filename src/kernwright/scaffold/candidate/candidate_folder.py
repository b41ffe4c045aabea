"""CandidateFolder: a new candidate for an op of a task, written completely or not at all."""

from __future__ import annotations

import importlib.resources
import itertools
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

from kernwright.core.errors import ExistsAlready, KernwrightError, did_you_mean
from kernwright.scaffold.candidate.cute_code import cute_source
from kernwright.scaffold.candidate.eager_copy import eager_copy
from kernwright.scaffold.candidate.native_code import native_source
from kernwright.scaffold.candidate.python_host import refuse_names_of_code
from kernwright.scaffold.candidate.row_trace import traced_op
from kernwright.scaffold.candidate.traced_op import NotPerRow, TracedOp
from kernwright.scaffold.candidate.triton_code import triton_source

CandidateLanguage = Literal["triton", "cuda", "cpp", "cutedsl", "python"]
CANDIDATE_FILE = "candidate.toml"
SPACE_FILE = "space.toml"  # the constants that the tuner searches
LANGUAGES: tuple[CandidateLanguage, ...] = get_args(CandidateLanguage)
ENTRIES: dict[CandidateLanguage, str] = {
    "triton": "kernel.py:{op}", "cuda": "kernel.cu:run", "cpp": "kernel.cc:run", "cutedsl": "kernel.py:{op}",
    "python": "kernel.py:{op}",
}  # fmt: skip
TEMPLATES = importlib.resources.files("kernwright.scaffold.templates.candidate")
FLAGS = {"cpp": '\n[build]\ncflags = ["-ffp-contract=off"]\n', "cuda": '\n[build]\ncuda_cflags = ["--fmad=false"]\n'}
_PYTHON = '''"""{op}: the eager chain of its definition. Written by `kernwright candidate new`.

Contract: {contract}. It is correct for every row, and runs the operators of the baseline `eager`. Replace its body.
"""
'''

_SOURCES: dict[CandidateLanguage, Callable[[TracedOp], str]] = {
    "triton": triton_source,
    "cuda": partial(native_source, language="cuda"),
    "cpp": partial(native_source, language="cpp"),
    "cutedsl": cute_source,
}


class CallRow(Protocol):
    """The parts of a task's row that a candidate depends on (`kernwright.tasks.workload.Workload`)."""

    @property
    def inputs(self) -> Mapping[str, Any]: ...
    @property
    def scalars(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True)
class CandidateFolder:
    """The files of a new candidate."""

    op: str
    language: CandidateLanguage
    files: dict[str, str]

    def write(self, folder: Path) -> None:
        """Write the folder. Raises ExistsAlready if there is one."""
        if folder.exists():
            raise ExistsAlready(f"{folder} exists already", "name another folder")
        folder.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        try:
            for name, text in self.files.items():
                (part / name).write_text(text, encoding="utf-8")
            part.chmod(0o755)
            part.rename(folder)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise


def new_candidate(op: Any, rows: Iterable[CallRow], language: str) -> CandidateFolder:
    """Return a candidate for an op that is correct on its rows.

    Args:
        op: the op (`kernwright.core.op.Op`).
        rows: the rows that the candidate must support; they tell which optional tensors and choices occur.

    Raises:
        NotPerRow: no kernel can be generated for the op, because it is neither elementwise nor a reduction of rows.
    """
    chosen = next((each for each in LANGUAGES if each == language), None)
    if chosen is None:
        raise KernwrightError(
            f"--language {language!r} is not known", did_you_mean(language, LANGUAGES, f"use {', '.join(LANGUAGES)}")
        )
    name, function = ENTRIES[chosen].format(op=op.name).split(":")
    files = {CANDIDATE_FILE: _toml(op, chosen, f"{name}:{function}")}
    if chosen == "python":
        return CandidateFolder(op.name, chosen, {**files, name: _eager_source(op)})
    rows = list(rows)
    _refuse_dtypes(op, rows, chosen)
    traced = traced_op(op, *_situations(op, rows))
    source = _SOURCES[chosen](traced)
    if name.endswith(".py"):
        refuse_names_of_code(traced, source)
    space = TEMPLATES.joinpath(f"space.{chosen}.toml").read_text(encoding="utf-8")
    return CandidateFolder(op.name, chosen, {**files, SPACE_FILE: space, name: source})


def _eager_source(op: Any) -> str:
    imports, functions = eager_copy(op).split("\n\n\n", 1)
    return "\n".join([_PYTHON.format(op=op.name, contract=op.contract), imports, functions])


def _toml(op: Any, language: CandidateLanguage, entry: str) -> str:
    lines = [f'op = "{op.name}"', f'language = "{language}"', f'entry = "{entry}"']
    lines += ['style = "writes"'] if language in ("triton", "cutedsl") else []
    flags = FLAGS.get(language, "") if op.contract == "exact" or language == "cpp" else ""
    return "\n".join(lines) + "\n" + flags


def _refuse_dtypes(op: Any, rows: Iterable[CallRow], language: CandidateLanguage) -> None:
    """Refuse rows with tensors that a generated kernel cannot read."""
    readable = {"fp32", "fp16", "bf16"}
    for name, tensor in (each for row in rows for each in row.inputs.items()):
        is_mask = language == "triton" and tensor.dtype != "fp64"
        if tensor.dtype not in readable and not is_mask:
            raise NotPerRow(op.name, f"its rows have {name} in {tensor.dtype}; kernels read fp32, fp16 and bf16")


def _situations(op: Any, rows: Iterable[CallRow]) -> tuple[list[frozenset[str]], list[dict[str, str | bool]]]:
    """Return the sets of optional tensors that rows have, and the values of scalars that are texts or truth values."""
    optional = {each.name for each in op.tensor_parameters if each.optional}
    texts = {name: value for name, value in op.scalar_defaults.items() if isinstance(value, bool | str)}
    given, values = {frozenset[str]()}, {name: {value} for name, value in texts.items()}
    for row in rows:
        given.add(frozenset(row.inputs) & optional)
        for name in texts:
            values[name].add(row.scalars.get(name, texts[name]))
    choices = itertools.product(*(sorted(values[name], key=str) for name in texts))
    return sorted(given, key=sorted), [dict(zip(texts, each, strict=True)) for each in choices]
