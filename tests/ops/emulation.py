"""Build the CUDA kernels for a CPU, with a check of the alignment of every access, as on a GPU."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Hashable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

from builds import made_once, shared_folder, shared_library

from kernwright.core.digest import digest_of
from kernwright.ops._shared.implementations import CUDA_HEADERS
from kernwright.ops._shared.implementations import TYPES as TYPES
from kernwright.runtime import library
from kernwright.runtime.library import Library
from kernwright.runtime.target import Target, compiler

HERE = Path(__file__).parent / "emulated_cuda"
WATCHED = "KERNWRIGHT_EMULATION_WATCHED"  # if set, every access must be to allocated memory, see test_memory.py
ADDRESSES = ("-fsanitize=address", "--param=asan-stack=0", "--param=asan-globals=0")
ALIGNMENT = ("-fsanitize=alignment", "-fno-sanitize-recover=alignment")  # aborting builds a quarter faster
Kind = TypeVar("Kind", bound=Hashable)


def built(
    source: str, headers: tuple[Path, ...], kinds: Mapping[Kind, Mapping[str, str]], folder: Path | None = None
) -> dict[Kind, Any]:
    """Return a module of each kind, built with the macros that choose it and shared with every test process."""
    import tvm_ffi

    # The emulation includes kernels and host code itself, so only its own file is compiled.
    included = [own for own in (*headers, *CUDA_HEADERS) if own.suffix not in (".cc", ".cu")]
    files = (HERE / source, HERE / "cuda_runtime.h", *included)

    def of(macros: Mapping[str, str]) -> Any:
        own = Library("_".join((Path(source).stem, *macros.values())), files, tuple(macros.items()))
        return tvm_ffi.load_module(str(shared_library(own, Target("cpu"))))

    # -Og compiles as fast as -O0 and runs twice as fast. Under a watch, every access of the sources must remain.
    if os.environ.get(WATCHED):  # instead of the alignment, which the same tests check without a watch
        checked = ("-O0", *library.CPU_FLAGS[1:], *ADDRESSES)  # too few builds for headers of their own
    else:
        checked = ("-Og", *library.CPU_FLAGS[1:], *ALIGNMENT)
        checked = (*checked, "-include", str(precompiled_headers(checked)))
    with patch.object(library, "CPU_FLAGS", checked), ThreadPoolExecutor(2) as pool:
        return dict(zip(kinds, pool.map(of, kinds.values()), strict=True))


# Foreign headers that every emulation includes. Reading them takes a third of the build time.
FOREIGN_HEADERS = """#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/optional.h>
#include <tvm/ffi/string.h>
#include <tvm/ffi/tvm_ffi.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <sstream>
#include <string>
#include <vector>
"""


def precompiled_headers(flags: tuple[str, ...]) -> Path:
    """Return a file of foreign headers, with a version precompiled for these flags next to it. The compiler uses it if
    it fits."""
    import tvm_ffi
    from tvm_ffi.libinfo import find_dlpack_include_path, find_include_path

    own = compiler()
    made_of = {"text": FOREIGN_HEADERS, "flags": flags, "tvm_ffi": tvm_ffi.__version__, "compiler": str(own)}
    name = f"foreign-{digest_of(made_of)[:24]}.h"

    def make(folder: Path) -> Path:
        made = folder / f"{name}.gch"
        (folder / name).write_text(FOREIGN_HEADERS, encoding="utf-8")
        if not made.exists():
            partial = made.with_suffix(f".{os.getpid()}")
            folders = [f"-I{path}" for path in (find_include_path(), find_dlpack_include_path())]
            always = ("-std=c++17", "-fPIC", "-O2")  # flags that tvm_ffi.cpp gives every build
            command = [str(own), "-x", "c++-header", *always, *flags, *folders, str(folder / name), "-o", str(partial)]
            subprocess.run(command, check=True)
            partial.replace(made)
        return made

    return made_once(name, make).with_suffix("")


FAMILY = """// The kernels of {family} on a CPU, behind the same checks as on a GPU.

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
