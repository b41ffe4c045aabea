"""The checks of compiled CUDA kernels, and the ledger of those that passed: kernel_checks.json, from compiler and check
to digest.

A digest covers the rule that is checked, the sources of the kernels with every header of ours, and the flags of the
compiler. Comments and formatting do not count. A check whose digest is in the ledger for the installed compiler is not
made again, because the kernels take minutes to compile.

KERNWRIGHT_KERNEL_CHECKS=all makes every check, whatever the ledger says. KERNWRIGHT_KERNEL_CHECKS=record adds the
checks that pass to the ledger, so that the change can be committed.
"""

from __future__ import annotations

import fcntl
import inspect
import json
import os
import subprocess
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal

import builds
import machine_code
import torch
import tvm_ffi
from builds import UNOPTIMISED, included_by, shared_compilations, shared_with_slow_host, with_included

from kernwright.core.digest import PYTHON, Source, code_digest
from kernwright.ops.ernie import family as ernie
from kernwright.ops.ltx2_modulate import family as ltx2_modulate
from kernwright.ops.modulation import family as modulation
from kernwright.ops.norm_modulation import family as norm_modulation
from kernwright.ops.norm_tanh import family as norm_tanh
from kernwright.ops.plain_norm import family as plain_norm
from kernwright.ops.residual_norm import family as residual_norm
from kernwright.runtime.library import CUDA_FLAGS, Library
from kernwright.runtime.target import Target, nvcc

MODE_VARIABLE = "KERNWRIGHT_KERNEL_CHECKS"
LEDGER = Path(__file__).with_name("kernel_checks.json")
BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32


@dataclass(frozen=True)
class Check:
    """A library's kernels, how they are compiled, and the rule that the result must meet.

    Kernels are compiled alone (`cubin`, `ptx`), or with the host code (`so`), which is then not optimised.
    """

    rule: Callable[[Path], None]
    library: Library
    architecture: str
    kind: Literal["cubin", "ptx", "so"] = "cubin"
    flags: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.rule.__name__} {self.library.name} {self.architecture}"

    @property
    def digest(self) -> str:
        """Return the digest of everything but the compiler that decides whether the check passes."""
        files = with_included(self.library.sources)
        facts = {
            "rule": self.rule.__name__, "architecture": self.architecture, "kind": self.kind,
            "flags": [*self.flags, *CUDA_FLAGS], "macros": dict(self.library.macros),
            # The digest of C++ code leaves out the names of included headers, without which a file may not compile.
            "includes": sorted([path.name, *included_by(path)] for path in files),
            "tvm_ffi": tvm_ffi.__version__ if self.kind == "so" else "",  # it builds libraries, with flags of its own
        }  # fmt: skip
        rules = [Source.read(Path(machine_code.__file__)), *(Source(PYTHON, inspect.getsource(own)) for own in MAKING)]
        return code_digest([*map(Source.read, files), *rules], facts)

    @property
    def has_passed(self) -> bool:
        """Return True if the ledger has this check in its present form, so that it need not be made."""
        return os.environ.get(MODE_VARIABLE) != "all" and passed().get(_version(), {}).get(self.name) == self.digest

    @property
    def is_recorded(self) -> bool:
        """Return True if the ledger has this check in its present form for any compiler."""
        return any(recorded.get(self.name) == self.digest for recorded in passed().values())

    def make(self) -> None:
        """Compile the kernels and apply the rule."""
        for path in self._compiled():
            self.rule(path)

    def _compiled(self) -> list[Path]:
        if self.kind == "so":
            return [shared_with_slow_host(self.library, Target(self.architecture))]
        return shared_compilations(self.library, self.architecture, self.kind, *self.flags)


# The code that compiles kernels and applies rules. The rest of these files looks up builds and entries.
MAKING = (
    Check, builds.with_included, builds.included_by, builds.shared_compilations, builds._compilation,
    builds.shared_with_slow_host, builds.shared_library,
)  # fmt: skip


def hold(check: Check) -> None:
    """Make a check unless it has passed before. Record it if that is requested."""
    if check.has_passed:
        return
    check.make()
    if os.environ.get(MODE_VARIABLE) == "record":
        _record(check)
    elif os.environ.get(MODE_VARIABLE) != "all":
        warnings.warn(f"{check.name}: not recorded in {LEDGER.name} in this form, see CONTRIBUTING.md", stacklevel=2)


def passed() -> dict[str, dict[str, str]]:
    """Return the digests of the checks that passed, by compiler and name."""
    try:
        recorded: dict[str, dict[str, str]] = json.loads(LEDGER.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return recorded


def _record(check: Check) -> None:
    """Add a check to the ledger, and remove what other compilers made of other forms of it."""
    folder = os.open(LEDGER.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)  # several test processes may record at once
        recorded = passed()
        for digests in recorded.values():
            if digests.get(check.name) != check.digest:
                digests.pop(check.name, None)
        recorded.setdefault(_version(), {})[check.name] = check.digest
        partial = LEDGER.with_suffix(f".{os.getpid()}")
        partial.write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        partial.replace(LEDGER)  # another process may read it meanwhile
    finally:
        os.close(folder)


@cache
def _version() -> str:
    """Return the build of nvcc, its last word on its version: the rules hold for what one build makes of the
    kernels."""
    said = subprocess.run([str(nvcc()), "--version"], capture_output=True, text=True, check=True).stdout
    return said.strip().splitlines()[-1]


def _turns(library: Library, kind: Literal["cubin", "so"] = "cubin") -> Check:
    flags = () if kind == "so" else ("-w", *CUDA_FLAGS)
    return Check(machine_code.waits_for_its_turn, library, "sm_90", kind, flags)


def _compiles(library: Library, architecture: str) -> Check:
    """Without optimisation, to save build time."""
    return Check(machine_code.compiles, library, architecture, "cubin", UNOPTIMISED)


# Most kernels of float32 compile fastest. Float32 tokens have no sums of two.
SUMS = Library(
    "sums",
    tuple(own for own in residual_norm.SUMS_OF_TWO if own.name != "kernel.cu"),
    residual_norm.CUDA["add_norm"].library(BF16).macros,
)
GENERAL_SUMS = Library("general_sums", residual_norm.GENERAL_SUMS, residual_norm.CUDA["add_norm"].library(FP32).macros)
# Every file of kernels once, some of them with the host code that launches them.
TURNS = (
    _turns(norm_modulation.CUDA["norm_scale_shift"].library(BF16), "so"),
    _turns(plain_norm.CUDA["rms_norm"].library(BF16), "so"),
    _turns(modulation.CUDA["scale_shift"].library(BF16, BF16), "so"),
    _turns(norm_modulation.EXACT["norm_scale_shift"].library(FP32)),
    _turns(norm_modulation.CUDA["norm_scale_shift_select"].library(FP32)),
    _turns(norm_tanh.CUDA["norm_tanh_mul_add_norm_scale"].library(BF16)),
    _turns(ernie.CUDA["ernie_norm_modulate"].library(FP32)),
    _turns(ltx2_modulate.CUDA["rms_modulate"].library(FP32)),
    _turns(GENERAL_SUMS),
    _turns(SUMS),
)
# The libraries above with their host code.
LINKS = tuple(replace(own, rule=machine_code.needs_nothing_undefined) for own in TURNS if own.kind == "so")
# `brief.cuh` differs below sm_80, and other headers below sm_90. The emulation compiles the code around the kernels.
ARCHITECTURES = (
    _compiles(norm_modulation.CUDA["norm_scale_shift"].library(FP16), "sm_75"),
    _compiles(norm_modulation.CUDA["residual_norm_scale_shift"].library(FP32), "sm_80"),
    _compiles(norm_modulation.CUDA["residual_norm_scale_shift_select"].library(BF16), "sm_75"),
    _compiles(norm_modulation.EXACT["residual_norm_scale_shift"].library(BF16), "sm_75"),
    _compiles(plain_norm.CUDA["rms_norm"].library(FP16), "sm_75"),
    _compiles(plain_norm.CUDA["rms_norm"].library(FP32), "sm_100"),
    Check(machine_code.compiles, modulation.CUDA["scale_shift"].library(BF16, FP32), "sm_75"),  # no native bfloat16
    _compiles(ltx2_modulate.CUDA["dual_modulate_from_table"].library(FP16), "sm_75"),
    _compiles(GENERAL_SUMS, "sm_75"),  # with residuals and second inputs of every dtype
)
# Float32 shows it: nothing rounds in between, so a fused multiply-add would give other bits.
PRODUCTS = (Check(machine_code.fuses_no_product, modulation.CUDA["scale_shift"].library(FP32, FP32), "sm_90", "ptx"),)
CHECKS = (*TURNS, *LINKS, *ARCHITECTURES, *PRODUCTS)
