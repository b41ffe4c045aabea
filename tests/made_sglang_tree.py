"""A small tree with the layout of SGLang's kernels: a registry, a facade, and a loader of native code."""

from __future__ import annotations

from pathlib import Path

SPEC = """
import importlib
from dataclasses import dataclass
from enum import Enum


class KernelBackend(str, Enum):
    TRITON = "triton"
    JIT = "jit"


class DeviceType(str, Enum):
    CUDA = "cuda"
    CPU = "cpu"


@dataclass(frozen=True)
class CapabilityRequirement:
    device: DeviceType


@dataclass(frozen=True)
class KernelSpec:
    op: str
    backend: KernelBackend
    target: str
    capabilities: frozenset = frozenset()

    def load(self):
        module, _, name = self.target.partition(":")
        return getattr(importlib.import_module(module), name)
"""
REGISTRY = """
class KernelRegistry:
    def __init__(self):
        self._specs = []

    def register(self, spec):
        self._specs.append(spec)

    def get(self, op):
        return [spec for spec in self._specs if spec.op == op]


registry = KernelRegistry()
register_kernel = registry.register
"""
FACADE = '''"""Kernels for diffusion models."""

from importlib import import_module

from sglang.kernels.registry import register_kernel
from sglang.kernels.spec import CapabilityRequirement, KernelBackend, KernelSpec

_CUDA = frozenset({CapabilityRequirement("cuda")})
_SPECS: tuple = (
    (
        "diffusion.taken",
        KernelBackend.TRITON,
        "norm.taken_triton:taken",
        _CUDA,
    ),
)

for _op, _backend, _target, _caps in _SPECS:
    register_kernel(KernelSpec(_op, _backend, f"{__name__}.{_target}", _caps))

_EXPORTS: dict[str, str] = {
    "taken": "norm.taken_triton",
}


def __getattr__(name):
    if name not in _EXPORTS:
        raise AttributeError(name)
    return getattr(import_module(f"{__name__}.{_EXPORTS[name]}"), name)
'''
JIT = """
import functools
import hashlib
import tempfile
from pathlib import Path

cache_once = functools.cache
CSRC = Path(__file__).parents[1] / "csrc"


def load_jit(*names, cpp_files, cuda_files, header_only, extra_cflags=()):
    import tvm_ffi
    import tvm_ffi.cpp

    assert not header_only and not cuda_files
    built = tvm_ffi.cpp.build(
        name="_".join(names), cpp_files=[str(CSRC / name) for name in cpp_files],
        extra_cflags=["-std=c++20", "-O3", *extra_cflags], build_directory=tempfile.mkdtemp(),
    )
    return tvm_ffi.load_module(built)
"""
FILES = {
    "sglang/__init__.py": "",
    "sglang/kernels/__init__.py": "from sglang.kernels import ops\n",
    "sglang/kernels/spec.py": SPEC,
    "sglang/kernels/registry.py": REGISTRY,
    "sglang/kernels/ops/__init__.py": "from sglang.kernels.ops import diffusion\n",
    "sglang/kernels/ops/diffusion/__init__.py": FACADE,
    "sglang/kernels/ops/diffusion/rope/__init__.py": "",
    "sglang/kernels/jit/__init__.py": "",
    "sglang/kernels/jit/utils/__init__.py": JIT,
    "sglang/kernels/jit/csrc/README": "",
}


def make_sglang_tree(root: Path, python: str = "") -> Path:
    """Write the tree. `python` is the folder of the package below the root, as in a checkout."""
    for name, text in FILES.items():
        path = root / python / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root
