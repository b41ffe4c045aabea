"""The check that rows are as wide as the module was made for. Without a weight no op would notice another width."""

from __future__ import annotations

from torch import Tensor

from kernwright.runtime.call import BadArgument


def check_rows(name: str, given: Tensor, width: int) -> None:
    """Raise BadArgument for a tensor of another width. Values that are not tensors are named by the op."""
    if isinstance(given, Tensor) and not given.is_nested and given.ndim and given.shape[-1] != width:
        raise BadArgument(name, f"is {list(given.shape)}, the module norms rows of {width}")
