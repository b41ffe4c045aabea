"""The ways to run LTX-2's modulated norms, and what each asks of a call.

The CUDA kernels sum a token as torch does on a GPU, and so does a second one of Triton's beside a close one. Both are
exact where the device at hand shows it (`exactness.py`); elsewhere `contract="exact"` runs the chain.
"""

from __future__ import annotations

from functools import partial

from torch import Tensor

from kernwright.core.op import Op
from kernwright.ops._shared.token_requirements import MOST_AXES, tokens_fit
from kernwright.ops._shared.torch_order import exact_function
from kernwright.ops.ltx2_modulate import definition, native, table_definition
from kernwright.ops.ltx2_modulate.arguments import MODULATIONS, check, promise_of, result_shapes
from kernwright.ops.ltx2_modulate.exactness import is_chains, sums_as_torch
from kernwright.runtime.call import Call
from kernwright.runtime.dispatch import Dispatcher
from kernwright.runtime.implementation import Implementation
from kernwright.runtime.outputs import from_module
from kernwright.runtime.requirements import on_cuda, triton_there

OPS = (
    definition.rms_modulate,
    definition.dual_modulate,
    table_definition.rms_modulate_from_table,
    definition.dual_modulate_from_table,
)
PROMISES = {op.name: promise_of(op) for op in OPS}


def modulated_tokens_fit(call: Call) -> str | None:
    """What every fused kernel asks of the tensors."""
    tensors: list[Tensor] = list(call.tensors.values())
    for name, shape in zip(call.op.outputs, result_shapes(call.op.name, tensors), strict=True):
        if shape != call.first.shape:
            return f"{name} is {list(shape)}, x is {list(call.first.shape)}"
    return tokens_fit(call, modulations=MODULATIONS, most_axes=MOST_AXES)


def _implementations(op: Op) -> list[Implementation]:
    cuda, promise = native.CUDA[op.name], PROMISES[op.name]
    triton = partial(from_module, "kernwright.ops.ltx2_modulate.triton", op, promise)
    return [
        cuda.implementation(op, promise, modulated_tokens_fit),
        Implementation(
            "cuda",
            "exact",
            partial(exact_function, op, partial(cuda.function, op, promise), is_chains),
            (on_cuda, modulated_tokens_fit, cuda.library_there, sums_as_torch("cuda")),
        ),
        Implementation("triton", "close", triton, (triton_there, modulated_tokens_fit)),
        Implementation(
            "triton",
            "exact",
            partial(exact_function, op, lambda: partial(triton(), exact=True), is_chains),
            (on_cuda, triton_there, modulated_tokens_fit, sums_as_torch("triton")),
        ),
    ]


DISPATCHERS = {op.name: Dispatcher(op, _implementations(op), check) for op in OPS}
