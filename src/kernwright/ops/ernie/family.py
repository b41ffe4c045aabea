"""Implementations of ERNIE-Image's ops. Modulations broadcast by torch's rule, so that `[S, D]` is a row per token.

ernie_residual_gate reduces nothing, and its kernels, which are those of `modulation`, have the chain's bits. The norms
are close: the sum over a token may be taken in any order.
"""

from __future__ import annotations

from kernwright.ops._shared.checks import broadcast_shape, check_floating, check_width, joint_shape
from kernwright.ops._shared.implementations import TOKEN_HEADERS, CudaOp, sources, triton
from kernwright.ops._shared.token_requirements import MOST_AXES, rounds_to_nearest, tokens_fit
from kernwright.ops.ernie import definition
from kernwright.ops.modulation.family import CUDA as MODULATION
from kernwright.runtime.call import Call
from kernwright.runtime.fused_op import FusedOp

NORMS = (definition.ernie_norm_modulate, definition.ernie_residual_norm_modulate)
GATE = definition.ernie_residual_gate
SOURCES = (*sources(__file__, "host.cc", "kernel.cu", "policy.h"), *TOKEN_HEADERS)


def check(call: Call) -> None:
    check_floating(call)
    check_width(call.first, call.op.activations[0])
    joint_shape(call, [parameter.name for parameter in call.op.tensor_parameters])


def modulated_tokens_fit(call: Call) -> str | None:
    """Require what every fused kernel asks of the tensors."""
    first, name = call.first, call.op.activations[0]
    shapes = [own.shape for own in call.tensors.values()]
    for output in call.op.outputs:  # the sum is of residual, update and gate; what is modulated has the shape of all
        shape = broadcast_shape(*(shapes[:3] if output == "residual_out" else shapes))
        if shape != first.shape:
            return f"{output} is {list(shape)}, {name} is {list(first.shape)}"
    for own, wanted in (("update", first.shape), ("weight", first.shape[-1:])):
        if (tensor := call.tensors.get(own)) is not None and tensor.shape != wanted:
            return f"{own} is {list(tensor.shape)}, not {list(wanted)}"
    return tokens_fit(call, modulations=("gate", "scale", "shift"), most_axes=MOST_AXES)


CUDA = {
    op.name: CudaOp(op.name, SOURCES, (("KERNWRIGHT_RESIDUAL", str(number)),)) for number, op in enumerate(NORMS)
} | {GATE.name: MODULATION[GATE.name]}
OPS = {
    op.name: FusedOp(
        op=op,
        implementations=(
            CUDA[op.name].implementation(op, modulated_tokens_fit, contract=op.contract),
            triton(__name__, op, modulated_tokens_fit, *([rounds_to_nearest] * (op is GATE)), contract=op.contract),
        ),
        check=check,
    )
    for op in (*NORMS, GATE)
}
