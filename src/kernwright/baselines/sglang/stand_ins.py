"""Stand-ins: modules that let sglang's kernels be imported without the rest of sglang.

The packages of sglang run most of the project when they are imported. A bare package in their place has the same folder
and no code, so modules below it are found. The few functions that the kernels import from elsewhere in sglang are
written here. Only a baseline's worker imports this module.
"""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch

BARE = (
    "sglang", "sglang.srt", "sglang.srt.utils", "sglang.kernels", "sglang.kernels.ops",
    "sglang.kernels.ops.quantization", "sglang.multimodal_gen", "sglang.multimodal_gen.runtime",
)  # fmt: skip


def install_sglang(tree: Path) -> None:
    """Make the kernels below `tree` importable."""
    for name in BARE:
        _enter(_bare_package(name, tree))
    _enter(_module("sglang.utils", is_in_ci=_no))
    _enter(
        _module(
            "sglang.srt.utils.common",
            direct_register_custom_op=direct_register_custom_op,
            get_cuda_version=cuda_version,
            is_cuda=_yes,
        )
    )
    sys.modules["sglang.srt.utils"].is_gfx1250_supported = _no  # type: ignore[attr-defined]
    _enter(_module("sglang.multimodal_gen.runtime.platforms", current_platform=Platform()))
    if not torch.cuda.is_available():
        torch.cpu.device = contextlib.nullcontext  # type: ignore[attr-defined]  # launchers enter their tensor's device


class Platform:
    """The platform that sglang sees. It is always NVIDIA: on a CPU, Triton's interpreter runs the kernels."""

    device_type = "cuda"

    def is_cuda(self) -> bool:
        return True

    def __getattr__(self, name: str) -> Callable[[], bool]:
        if name.startswith("is_"):
            return _no
        raise AttributeError(name)


def direct_register_custom_op(
    op_name: str,
    op_func: Callable[..., Any],
    mutates_args: Sequence[str],
    fake_impl: Callable[..., Any] | None = None,
    target_lib: Any = None,
) -> None:
    """Register an op below torch.ops.sglang for one device, without autograd. A call takes as long as in sglang."""
    library = target_lib or _library()
    library.define(op_name + torch.library.infer_schema(op_func, mutates_args=mutates_args))
    library.impl(op_name, op_func, "CUDA" if torch.cuda.is_available() else "CPU")
    if fake_impl is not None:
        library._register_fake(op_name, fake_impl)


@cache
def _library() -> Any:
    """Return the library of the ops, which is kept because ops exist only as long as their library."""
    return torch.library.Library("sglang", "FRAGMENT")  # type: ignore[no-untyped-call]


def cuda_version() -> tuple[int, ...]:
    return tuple(int(part) for part in (torch.version.cuda or "0.0").split("."))


def _yes() -> bool:
    return True


def _no() -> bool:
    return False


def _bare_package(name: str, tree: Path) -> types.ModuleType:
    module = types.ModuleType(name)
    module.__path__ = [str(tree.joinpath(*name.split(".")))]
    return module


def _module(name: str, **content: object) -> types.ModuleType:
    module = types.ModuleType(name)
    vars(module).update(content)
    return module


def _enter(module: types.ModuleType) -> None:
    sys.modules[module.__name__] = module
    parent, _, name = module.__name__.rpartition(".")
    if parent:
        setattr(sys.modules[parent], name, module)
