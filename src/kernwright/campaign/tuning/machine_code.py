"""MachineCode: the instructions that a candidate compiles to, and the report of the compiler.

The compiler reads the candidate; nothing of it is run or imported. Two candidates with the same digest run the same
instructions, so that only one of them needs to be judged.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from kernwright.core.digest import Source
from kernwright.tasks.candidate import NATIVE, Candidate

DEADLINE_S = 300.0
_ALLOCATED, _EXECUTABLE, _STRINGS = 0x2, 0x4, 0x20
_WITH_BYTES, _RELOCATIONS = 1, 4
# The device code lies in these sections of a host object, compressed and with names; it is read from its own file.
_EMBEDDED = (b".nv_fatbin", b".nvFatBinSegment", b"__nv_relfatbin")
_SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


class KernelReport(BaseModel):
    """The resources of one kernel, as ptxas reports them."""

    model_config = ConfigDict(frozen=True)

    name: str
    registers: int = 0
    spill_stores: int = 0
    spill_loads: int = 0
    shared_bytes: int = 0


class MachineCode(BaseModel):
    """The result of a compilation. `problem` is the compiler's first error; `digest` is empty then."""

    model_config = ConfigDict(frozen=True)

    digest: str = ""
    kernels: tuple[KernelReport, ...] = ()
    problem: str = ""


@dataclass(frozen=True)
class CodeCompiler:
    """Compiles candidates for one architecture, such as sm_90, and remembers what it compiled in a folder."""

    architecture: str
    remembered: Path | None = None

    def compile(self, candidate: Candidate) -> MachineCode:
        path = self.remembered / f"{candidate.digest}-{self.architecture}.json" if self.remembered else None
        if path is not None and path.is_file():
            try:
                return MachineCode.model_validate_json(path.read_bytes())
            except ValueError:
                path.unlink()
        made = self._compiled(candidate)
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(made.model_dump_json(), encoding="utf-8")
        return made

    def _compiled(self, candidate: Candidate) -> MachineCode:
        if candidate.file.language not in NATIVE:
            return MachineCode(digest=_source_digest(candidate))
        with tempfile.TemporaryDirectory(prefix="kernwright-compile-") as scratch:
            folder = Path(scratch, "candidate")
            for name, content in candidate.sources.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(content)
            parts: list[bytes] = []
            log = ""
            for number, name in enumerate((candidate.entry_file, *candidate.file.build.sources)):
                made = Path(scratch, str(number))
                made.mkdir()
                done = _run(self._command(candidate, name, made), folder)
                log += done.stdout
                if done.returncode:
                    return MachineCode(problem=_first_error(done.stdout, folder))
                parts += [_instructions(path.read_bytes()) for path in sorted(made.glob("*.o"))]
                parts += [_instructions(path.read_bytes()) for path in sorted(made.glob("*.cubin"))]
        digest = hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()
        return MachineCode(digest=digest, kernels=tuple(_reports(log)))

    def _command(self, candidate: Candidate, name: str, made: Path) -> list[str]:
        build = candidate.file.build
        include = [f"-I{folder}" for folder in (*_ffi_headers(), ".")]
        if name.endswith(".cu"):
            options = [f"-arch={self.architecture}", "-std=c++17", "-Xcompiler", "-fPIC", "-O3", "-Xptxas", "-v"]
            kept = ["--keep", "--keep-dir", str(made)]
            return ["nvcc", "-c", name, "-o", str(made / "code.o"), *options, *kept, *include, *build.cuda_cflags]
        return ["c++", "-c", name, "-o", str(made / "code.o"), "-std=c++17", "-fPIC", "-O3", *include, *build.cflags]


def missing_compiler(candidate: Candidate) -> str | None:
    """Return the name of a compiler that a candidate needs and this machine lacks."""
    if candidate.file.language not in NATIVE:
        return None
    names = {candidate.entry_file, *candidate.file.build.sources}
    wanted = {"nvcc" if name.endswith(".cu") else "c++" for name in names}
    return next((name for name in sorted(wanted) if shutil.which(name) is None), None)


def _ffi_headers() -> list[Path]:
    spec = importlib.util.find_spec("tvm_ffi")  # its headers; nothing of it is imported
    folders = spec.submodule_search_locations if spec is not None else None
    return [Path(folder, "include") for folder in folders or ()]


def _run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace", timeout=DEADLINE_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, f"error: no result after {DEADLINE_S:.0f} s")


def _first_error(log: str, folder: Path) -> str:
    lines = [line.replace(f"{folder}/", "").strip() for line in log.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line.lower()), lines[-1] if lines else "no message")[:300]


def _reports(log: str) -> Iterator[KernelReport]:
    """Yield the report of each kernel in the log of `ptxas -v`."""
    for piece in log.split("Compiling entry function '")[1:]:
        spills, used, shared = _SPILLS.search(piece), _REGISTERS.search(piece), _SHARED.search(piece)
        yield KernelReport(
            name=piece.partition("'")[0],
            registers=int(used[1]) if used else 0,
            spill_stores=int(spills[1]) if spills else 0,
            spill_loads=int(spills[2]) if spills else 0,
            shared_bytes=int(shared[1]) if shared else 0,
        )


def _source_digest(candidate: Candidate) -> str:
    """Return the digest of sources that are compiled only when they run, without comments and formatting."""
    contents: Mapping[str, str] = {
        name: Source(Path(name).suffix, content.decode("utf-8", "replace")).code
        for name, content in candidate.sources.items()
        if Path(name).suffix == ".py"
    }
    return hashlib.sha256(repr(sorted(contents.items())).encode()).hexdigest()


def _instructions(data: bytes) -> bytes:
    """Return the instructions, constants and relocations of an ELF file, without names and texts."""
    if data[:5] != b"\x7fELF\x02":
        return data
    (table,) = struct.unpack_from("<Q", data, 0x28)
    size, count, names_at = struct.unpack_from("<HHH", data, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, table + number * size) for number in range(count)]
    names_start = headers[names_at][4]
    parts = []
    for name, kind, flags, _, offset, length, _, info, _, _ in headers:
        title = data[names_start + name : data.index(b"\0", names_start + name)]
        content = data[offset : offset + length]
        if title.startswith(_EMBEDDED) or title.startswith((b".eh_frame", b".rela.eh_frame")):
            continue
        is_code = kind == _WITH_BYTES and flags & _ALLOCATED and not flags & _STRINGS
        if is_code or (kind == _RELOCATIONS and headers[info][2] & _EXECUTABLE):
            parts.append(content)
    return b"".join(struct.pack("<Q", len(part)) + part for part in sorted(parts))
