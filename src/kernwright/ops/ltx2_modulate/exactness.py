"""The order in which torch sums a token on a GPU, and the check that an exact kernel has the same bits on a device.

All of the chain is elementwise except F.rms_norm of x in float32. The order in which that sums a token is not part of
torch's interface, and may change with any version. By torch's sources a row of N channels, N a multiple of 4 up to
2 ** 24 and its start aligned to 16 bytes, is summed in this order:

- a block of 4 warps (128 threads) per row; thread t takes the groups of 4 channels t, t + 128, t + 256, ... in turn;
- within a thread `sum = fma(v, v, sum)` over its channels in their order, from 0: the compiler contracts the product;
- within a warp by shuffles down, 16, 8, 4, 2, 1 lanes apart: lane 0 has ((0 + 16) + (8 + 24)) + ...;
- between the warps (0 + 2) + (1 + 3), through shared memory;
- then one division by N, rounded to nearest, `+ eps` with eps in float32, and CUDA's rsqrtf, which is an approximation;
- each value is `rsqrt * x`, rounded to float32, before the modulation, whose products and sums round one by one, with
  `1 + scale` in the modulation's dtype.

Torch has another kernel, with another order, for every other row (an odd width, a view that is not aligned).

An order does not depend on the values. So a device is checked once for each width and dtype: the norms by the kernel
and by torch, of random rows of many magnitudes, must be equal in every bit. Two orders may agree by chance on a single
row, but not on hundreds.
"""

from __future__ import annotations

from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from kernwright.core.op import Op
from kernwright.ops._shared.torch_order import keeps_order, starts_off_group
from kernwright.runtime.call import Call
from kernwright.runtime.implementation import Requirement

ROWS, EPS = 512, 1e-6


def sums_as_torch(backend: str) -> Requirement:
    """Return the requirement that the device at hand sums as torch does."""
    return keeps_order(backend, _shown_for)


def _shown_for(backend: str, call: Call) -> bool:
    return shown(backend, call.first.device, call.first.dtype, call.first.shape[-1])


@cache
def shown(backend: str, device: torch.device, dtype: torch.dtype, width: int) -> bool:
    generator = torch.Generator(device).manual_seed(width)
    magnitudes = 10 ** (torch.rand(ROWS, 1, generator=generator, device=device) * 8 - 4)
    rows = (torch.randn(ROWS, width, generator=generator, device=device) * magnitudes).to(dtype)
    with torch.no_grad():
        wanted = F.rms_norm(rows.float(), (width,), None, EPS)
        # A number and a row, for which there may be different kernels.
        modulations = [torch.zeros(size, device=device, dtype=dtype) for size in (1, width)]
        return all(torch.equal(_modulated(backend, rows, own), wanted) for own in modulations)


def _modulated(backend: str, rows: Tensor, by: Tensor) -> Tensor:
    if backend == "cuda":
        from kernwright.ops.ltx2_modulate.family import CUDA

        found = torch.empty_like(rows, dtype=torch.float32)
        taken = CUDA["rms_modulate"].launch(rows.device, rows.dtype)(rows, by, by, EPS, found)
        assert taken
        return found
    from kernwright.ops.ltx2_modulate import triton as triton_kernel

    return triton_kernel.rms_modulate(rows, by, by, eps=EPS, exact=True)


def is_chains(op: Op, x: Tensor) -> bool:
    """Return whether the chain must run. Torch reads a float32 x in place; of other dtypes it makes an aligned copy."""
    return x.dtype == torch.float32 and starts_off_group(x)
