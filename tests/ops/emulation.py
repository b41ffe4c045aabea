"""Build the CUDA kernels for a CPU, with the alignment of every access checked, as a GPU checks it."""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

from builds import shared_folder, shared_library

from kernwright.ops._shared.implementations import CUDA_HEADERS
from kernwright.ops._shared.implementations import TYPES as TYPES
from kernwright.runtime import library
from kernwright.runtime.library import Library
from kernwright.runtime.target import Target

HERE = Path(__file__).parent / "emulated_cuda"
WATCHED = "KERNWRIGHT_EMULATION_WATCHED"  # set: every access must be to memory that was given out, see test_memory.py
Kind = TypeVar("Kind", bound=Hashable)


def built(
    source: str, headers: tuple[Path, ...], kinds: Mapping[Kind, Mapping[str, str]], folder: Path | None = None
) -> dict[Kind, Any]:
    """Return a module of each kind, built with the macros that choose it and shared with every test process."""
    import tvm_ffi

    # The emulation includes kernels and host code itself: nothing but its own file is compiled.
    included = [own for own in (*headers, *CUDA_HEADERS) if own.suffix not in (".cc", ".cu")]
    files = (HERE / source, HERE / "cuda_runtime.h", *included)

    def of(macros: Mapping[str, str]) -> Any:
        own = Library("_".join((Path(source).stem, *macros.values())), files, tuple(macros.items()))
        return tvm_ffi.load_module(str(shared_library(own, Target("cpu"))))

    # Nobody times it, and builds are waited for: those of checks that nothing goes on from take a quarter less.
    checked = ("-O1", *library.CPU_FLAGS[1:], "-fsanitize=alignment", "-fno-sanitize-recover=alignment")
    if os.environ.get(WATCHED):
        checked = (*checked, "-fsanitize=address", "--param=asan-stack=0", "--param=asan-globals=0")
    with patch.object(library, "CPU_FLAGS", checked), ThreadPoolExecutor(2) as pool:
        return dict(zip(kinds, pool.map(of, kinds.values()), strict=True))


FAMILY = """// The kernels of {family} on a CPU, behind the same checks as on a GPU.

#pragma GCC optimize("O1")

#include <cuda_runtime.h>

#include "{family}/kernel.cu"
#include "{family}/host.cc"

#include "emulated_call.h"

KERNWRIGHT_EMULATE(kernwright::Problem)

namespace kernwright {{

bool run(ffi::PackedArgs given) {{
  return emulated<Call>(given, [](const Problem& own) {{ return Call::start(own, 0, nullptr) == 0; }});
}}

}}  // namespace kernwright

KERNWRIGHT_EXPORT(run, kernwright::run)
"""


def built_family(family: str, headers: tuple[Path, ...], kinds: Mapping[Kind, Mapping[str, str]]) -> dict[Kind, Any]:
    """Return modules whose function `run` is the foreign function of a family with one op, on a CPU."""
    source = shared_folder() / "sources" / f"{family}_emulation.cc"
    source.parent.mkdir(parents=True, exist_ok=True)
    source.write_text(FAMILY.format(family=family), encoding="utf-8")
    named = {kind: {"KERNWRIGHT_OP": "foreign", **macros} for kind, macros in kinds.items()}
    return built(str(source), (*headers, HERE / "emulated_call.h"), named)
