"""Random weights: modules are constructed without memory, and get seeded weights on their device.

The weights keep activations at the size of their inputs through any number of layers. A matrix preserves the variance
of its input. The outputs of residual branches are scaled by 1/sqrt(2 * layers), so that the sum over all layers has
about the size of its first term. Weights of norms are near 1.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import nn

# The last projection of an attention, a feed-forward layer or a fused block, in diffusers and in transformers.
_BRANCH_END = re.compile(
    r"(to_out(\.0)?|to_add_out|audio_to_out|proj_out|out_proj|o_proj|down_proj|net\.2|linear_out|w2|wo|fc2|\.o|dense_4h_to_h"
    r"|to_out\.\d|attn\.proj|linear_2)\.weight$"
)
_INDEX = re.compile(r"^(.*?)\.(\d+)\.")
SPREAD = 0.02  # standard deviation of biases, and of the weights of norms around 1


@contextmanager
def without_weights() -> Iterator[None]:
    """Construct modules whose parameters have no memory. Buffers and plain tensors are computed as usual."""
    import torch
    from torch import nn

    register = nn.Module.register_parameter

    def on_meta(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        if parameter is not None and parameter.device.type != "meta":
            parameter = nn.Parameter(parameter.detach().to("meta"), requires_grad=False)
        register(module, name, parameter)

    nn.Module.register_parameter = on_meta  # type: ignore[method-assign,assignment]
    try:
        with torch.no_grad():
            yield
    finally:
        nn.Module.register_parameter = register  # type: ignore[method-assign]


def seed_of(name: str, seed: int) -> int:
    """Return the seed of one component: components with the same shapes get different weights."""
    return seed + zlib.crc32(name.encode())


def materialise(model: nn.Module, device: str, dtype: torch.dtype, seed: int) -> None:
    """Give a module its memory on a device, with random weights. Weights that modules share stay shared.

    Parameters that the class keeps in float32 stay there. Buffers that a checkpoint would contain get the dtype of the
    weights; buffers that the module computes itself keep theirs.
    """
    import torch
    from torch import nn

    generator = torch.Generator(device).manual_seed(seed)
    kept = _kept_in_float32(model)
    lengths = {name: len(each) for name, each in model.named_modules() if isinstance(each, nn.ModuleList)}
    made: dict[int, tuple[Any, nn.Parameter]] = {}
    for path, owner in model.named_modules():
        for key, parameter in owner._parameters.items():
            if parameter is None:
                continue
            if id(parameter) not in made:
                name = f"{path}.{key}" if path else key
                own = torch.float32 if kept and set(name.split(".")) & kept else dtype
                fresh = torch.empty(parameter.shape, dtype=own, device=device)
                _fill(fresh, owner, key, _branch_scale(name, lengths), generator)
                made[id(parameter)] = (parameter, nn.Parameter(fresh, requires_grad=False))
            owner._parameters[key] = made[id(parameter)][1]
        for key, buffer in owner._buffers.items():
            if buffer is not None:
                stored = buffer.is_floating_point() and key not in owner._non_persistent_buffers_set
                owner._buffers[key] = buffer.to(device, dtype if stored else buffer.dtype)


def _kept_in_float32(model: nn.Module) -> set[str]:
    """Return the parts of names that mark parameters in float32. The mark of transformers applies to float16 only."""
    if type(model).__module__.startswith("diffusers."):
        return set(getattr(model, "_keep_in_fp32_modules", None) or ())
    return set(getattr(model, "_keep_in_fp32_modules_strict", None) or ())


def _branch_scale(name: str, lengths: dict[str, int]) -> float:
    """Return the factor of a weight: below 1 if it ends a residual branch of a repeated layer."""
    match = _INDEX.match(name)
    if match is None or not _BRANCH_END.search(name):
        return 1.0
    return 1 / math.sqrt(2 * max(1, lengths.get(match[1], 1)))


def _fill(tensor: torch.Tensor, owner: nn.Module, key: str, scale: float, generator: torch.Generator) -> None:
    from torch import nn

    if "norm" in type(owner).__name__.lower() and key != "bias":
        tensor.normal_(1.0, SPREAD, generator=generator)
    elif isinstance(owner, nn.Embedding):
        tensor.normal_(0.0, 1.0, generator=generator)
    elif tensor.ndim < 2 or not tensor.numel():
        tensor.normal_(0.0, SPREAD, generator=generator)
    else:
        outputs = tensor.shape[1 if isinstance(owner, nn.modules.conv._ConvTransposeNd) else 0]
        tensor.normal_(0.0, scale / math.sqrt(tensor.numel() / outputs), generator=generator)
