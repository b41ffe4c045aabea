"""The order in which torch norms a token on a GPU, and the check that an exact kernel has the same bits on a device.

All of the chain is elementwise except F.layer_norm. The order in which that goes through a token is not part of torch's
interface, and may change with any version. By torch's sources, a row of N channels, with N a multiple of 4 up to 2 **
24 and its start aligned to four elements, is normed as follows:

- a block of 4 warps (128 threads) per row; thread t takes the groups of 4 channels t, t + 128, t + 256, ... in turn;
- within a thread Welford's rule in float32, as the compiler contracts it: `apart = v - mean`,
  `mean = fma(apart, 1 / n, mean)`, `squares = fma(apart, v - mean, squares)`;
- two parts are merged as `mean = fma(nA / n, meanA, (nB / n) * meanB)` and `squares = fma(apart ** 2 * nA, nB / n,
  squaresA + squaresB)`, where B is the part that stays, and each n / n is a product with 1 / n, which rounds;
- within a warp by shuffles down, 16, 8, 4, 2, 1 lanes apart; between the warps 0 and 2, 1 and 3, then both;
- then one division of the squares by N, rounded to nearest, `+ eps` with eps in float32, and CUDA's rsqrtf, which is
  an approximation; each value is `rsqrt * (x - mean)`, rounded to float32 and then to x's dtype.

Torch has another kernel, with another order, for every other row (a width that is no multiple of 4, an address off four
elements). Tokens with gaps are copied first, and the copy is aligned.

An order does not depend on the values. So a device is checked once for each op, width and dtype: the kernel's norm and
torch's own, of random rows of many magnitudes, some far from zero, must be equal in every bit. Another order is off by
an ulp of float32 in most rows, which changes one in some ten thousand elements of a narrower dtype, so among millions
of elements hundreds differ.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache, partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from kernwright.core.op import Op
from kernwright.ops._shared.implementations import CudaOp
from kernwright.ops._shared.torch_order import keeps_order, starts_off_group
from kernwright.runtime.call import Call
from kernwright.runtime.implementation import Launch, Requirement

FEWEST_ROWS, FEWEST_ELEMENTS, EPS = 512, 2**22, 1e-6
_shown_widths: dict[tuple[str, torch.dtype], set[int]] = defaultdict(set)  # widths of CUDA kernels, by op


def is_plain_layer_norm(call: Call) -> str | None:
    """Require a norm whose order of sums is known."""
    if call.arguments["norm_type"] != "layer":
        return "is for LayerNorm, and the norm is another"
    return "is for a norm without weight and bias" if "weight" in call.tensors else None


def norms_as_torch(backend: str) -> Requirement:
    return keeps_order(backend, _shown_for)


def _shown_for(backend: str, call: Call) -> bool:
    return shown(backend, call.op.name, call.first.device, call.first.dtype, call.first.shape[-1])


@cache
def shown(backend: str, op: str, device: torch.device, dtype: torch.dtype, width: int) -> bool:
    generator, count = torch.Generator(device).manual_seed(width), max(FEWEST_ROWS, FEWEST_ELEMENTS // width)
    draw = partial(torch.rand, count, 1, generator=generator, device=device)
    rows = torch.randn(count, width, generator=generator, device=device) * 10 ** (draw() * 6 - 4)
    rows = (rows + rows.std(-1, keepdim=True) * (draw() * 20 - 10)).to(
        dtype
    )  # up to ten deviations from zero, and far from the limits of float16
    with torch.no_grad(), torch.autocast(device.type, enabled=False):  # autocast would make torch norm in float32
        wanted = F.layer_norm(rows, (width,), eps=EPS)
        # A number and a row, for which there may be different kernels.
        modulations = [torch.zeros(size, device=device, dtype=dtype) for size in (1, width)]
        is_shown = all(torch.equal(_modulated(backend, op, rows, own), wanted) for own in modulations)
    if is_shown and backend == "cuda":
        _shown_widths[op, dtype].add(width)
    return is_shown


def _modulated(backend: str, op: str, rows: Tensor, by: Tensor) -> Tensor:
    """Return the modulated norm. With a residual, zeros are added to it."""
    ahead, behind = ([torch.zeros_like(rows), rows], [None]) if op.startswith("residual") else ([rows], [])
    if backend == "cuda":
        from kernwright.ops.norm_modulation.family import EXACT

        outputs = [torch.empty_like(rows) for _ in ahead]
        launch = EXACT[op].launch(rows.device, rows.dtype)
        taken = launch(*ahead, by, by, *behind, None, None, "layer", EPS, *outputs)
        assert taken
        return outputs[0]
    from kernwright.ops.norm_modulation import exact_triton

    found: Any = getattr(exact_triton, op)(*ahead, by, by, *behind, eps=EPS)
    return found if isinstance(found, Tensor) else found[0]


def is_chains(op: Op, x: Tensor) -> bool:
    """Return whether the chain must run. torch copies tokens with gaps first, and the sum with a residual is its own
    tensor: both are aligned."""
    return not op.name.startswith("residual") and x.is_contiguous() and starts_off_group(x)


def shown_shortcut(op: str, cuda: CudaOp, device: torch.device, dtype: torch.dtype) -> Launch | None:
    """Return the function for the fast path. It refuses widths for which the device has not shown torch's order,
    because the library cannot know this. The library refuses all other calls that torch norms in another order."""
    own = cuda.shortcut(device, dtype)
    if own is None:
        return None
    foreign, widths = own, _shown_widths[op, dtype]

    def launch(x: Tensor, *others: Any) -> bool:
        return x.shape[-1] in widths and foreign(x, *others)

    return launch
