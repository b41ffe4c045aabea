"""Compilation of a transformer: by repeated blocks, as a whole, or as a whole with autotuning and CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, get_args

from kernwright.core.errors import KernwrightError

if TYPE_CHECKING:
    from torch import nn

CompileMode = Literal["off", "regional", "full", "max-autotune"]
COMPILE_MODES: tuple[CompileMode, ...] = get_args(CompileMode)


def compile_transformer(transformer: nn.Module, mode: CompileMode, backend: str = "inductor") -> None:
    """Mark a transformer, in place, to be compiled at its first call."""
    if mode == "regional":
        blocks = getattr(transformer, "_repeated_blocks", None)
        if not blocks:
            raise KernwrightError(
                f"{type(transformer).__name__} names no repeated blocks", "use --compile full for this model"
            )
        transformer.compile_repeated_blocks(fullgraph=True, backend=backend)  # type: ignore[operator]
    elif mode == "full":
        transformer.compile(backend=backend)
    elif mode == "max-autotune":
        options = {"mode": "max-autotune"} if backend == "inductor" else {"backend": backend}
        transformer.compile(**options)


def graph_safe(call: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """Make a call of a model that replays CUDA graphs, and copy its results: the next replay overwrites them."""
    import torch

    torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
    return torch.utils._pytree.tree_map_only(torch.Tensor, torch.clone, call(*arguments, **named))
