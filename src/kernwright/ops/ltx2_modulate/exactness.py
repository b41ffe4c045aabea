"""Whether an exact kernel has the bits of the chain: in what order torch sums a token on a GPU, and how a device is
asked whether it does.

All of the chain is elementwise but F.rms_norm of x in float32. The order in which that sums a token is no part of
torch's interface, and may change with any version. By its sources, as far as they were read, a row of N channels, N a
multiple of 4 up to 2 ** 24 and its start aligned to 16 bytes, is summed so:

- a block of 4 warps (128 threads) a row; thread t takes the groups of 4 channels t, t + 128, t + 256, ... in turn;
- within a thread `sum = fma(v, v, sum)` over its channels in their order, from 0: the compiler contracts the product;
- within a warp by shuffles down, 16, 8, 4, 2, 1 lanes apart: lane 0 has ((0 + 16) + (8 + 24)) + ...;
- between the warps (0 + 2) + (1 + 3), through shared memory;
- then one division by N, rounded to nearest, `+ eps` with eps in float32, and CUDA's rsqrtf, which is an approximation;
- each value is `rsqrt * x`, rounded to float32, before the modulation: products and sums there round one by one, with
  `1 + scale` in the modulation's dtype.

Every other row (an odd width, a view off 16 bytes) goes through another kernel of torch's, whose order is another.

An order does not depend on what is summed. So the device is asked once for each width and dtype: the kernel's norm and
torch's own, of random rows of many magnitudes, must be equal in every bit. Two orders agree by chance on a row now and
then, not on hundreds.
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
        # A number and a row: kernels may part there.
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
    """Of other dtypes the chain makes a float32 copy, which starts as it should."""
    return x.dtype == torch.float32 and starts_off_group(x)
