"""The ways to run LTX-2's modulated norms, and what each asks of a call.

No implementation is exact yet. All of the chain is elementwise in float32 but F.rms_norm of x in float32, so an exact
kernel must repeat the order in which torch sums a token on a GPU, and that order is no part of torch's interface: it
must be shown on a device, and again for each version of torch. By torch's sources, as far as they were read, a row of
N channels, N a multiple of 4 up to 2 ** 24 and its start aligned to 16 bytes, is summed so:

- a block of 4 warps (128 threads) a row; thread t takes the groups of 4 channels t, t + 128, t + 256, ... in turn;
- within a thread `sum = fma(v, v, sum)` over its channels in their order, from 0: the compiler contracts the product;
- within a warp by shuffles down, 16, 8, 4, 2, 1 lanes apart: lane 0 has ((0 + 16) + (8 + 24)) + ...;
- between the warps (0 + 2) + (1 + 3), through shared memory;
- then one division by N, rounded to nearest, `+ eps` with eps in float32, and CUDA's rsqrtf, which is an approximation;
- each value is `rsqrt * x`, rounded to float32, before the modulation: products and sums there round one by one, with
  `1 + scale` in the modulation's dtype.

Every other row (an odd width, a view off 16 bytes) goes through another kernel, a block of 512 threads of strided
channels, whose order is another; an exact implementation may refuse those. Dual and table variants norm once and reuse
it, so they need nothing more. Until such a kernel was held to torch.equal on a GPU, `contract="exact"` runs the chain.
"""

from __future__ import annotations

from functools import partial

from torch import Tensor

from kernwright.ops.definition import Op
from kernwright.ops.ltx2_modulate import definition
from kernwright.ops.ltx2_modulate.arguments import MODULATIONS, check, promise_of, result_shapes
from kernwright.ops.token_requirements import tokens_fit
from kernwright.runtime.call import Call
from kernwright.runtime.dispatch import Dispatcher
from kernwright.runtime.implementation import Implementation
from kernwright.runtime.outputs import from_module
from kernwright.runtime.requirements import triton_there

OPS = (definition.rms_modulate, definition.dual_modulate, definition.dual_modulate_from_table)
PROMISES = {op.name: promise_of(op) for op in OPS}


def modulated_tokens_fit(call: Call) -> str | None:
    """What every fused kernel asks of the tensors."""
    tensors: list[Tensor] = list(call.tensors.values())
    for name, shape in zip(call.op.outputs, result_shapes(call.op.name, tensors), strict=True):
        if shape != call.first.shape:
            return f"{name} is {list(shape)}, x is {list(call.first.shape)}"
    return tokens_fit(call, modulations=MODULATIONS)


def _implementations(op: Op) -> list[Implementation]:
    load = partial(from_module, "kernwright.ops.ltx2_modulate.triton_kernel", op, PROMISES[op.name])
    return [Implementation("triton", "close", load, (triton_there, modulated_tokens_fit))]


DISPATCHERS = {op.name: Dispatcher(op, _implementations(op), check) for op in OPS}
