"""Unmapped arguments: tensors and strings of a captured call that the op does not take.

A draft that ignored them silently would freeze the calls of another function as calls of the op.
"""

from __future__ import annotations

from collections.abc import Collection

from kernwright.admission.captured_row import DraftRequest
from kernwright.capture.capture import Capture, CapturedCall, CapturedModule, CapturedScalar, CapturedTensor
from kernwright.capture.own_ops import WISHES, op_of
from kernwright.core.errors import BadFile, KernwrightError


def refuse_unmapped_arguments(capture: Capture, request: DraftRequest, ignored: Collection[str]) -> None:
    """Raise BadFile if a call has a tensor or a string that the op does not take.

    A string selects what is computed, so such a call is not a call of the op. An unused number is only noted.
    """
    own = (*(parameter.name for parameter in request.op.tensor_parameters), *request.op.scalar_defaults)
    taken = {*request.mapping.values(), *(name for name in own if name not in request.mapping)}
    met: set[str] = set()
    for number, call in enumerate(capture.calls, 2):
        if call.call != request.call or call.raised:
            continue
        met |= {argument.name for argument in call.arguments} | {*call.values()}
        if unmapped := _unmapped(call, taken, ignored):
            raise BadFile(
                f"{request.source}:{number}", ", ".join(unmapped),
                f"is no argument of {request.op.name}: the call is one of another function",
                f"choose the --op that was called; {request.op.name} takes {', '.join(own)}: --map NAME=ARGUMENT says "
                "where they are; --ignore leaves out an argument that no result depends on",
            )  # fmt: skip
    if unknown := sorted({*ignored} - met):
        raise KernwrightError(
            f"--ignore {unknown[0]}: {request.call} has no such argument", f"it has: {', '.join(sorted(met))}"
        )


def _unmapped(call: CapturedCall, taken: Collection[str], ignored: Collection[str]) -> list[str]:
    """Return the tensors and strings of a call that the op does not take, strings with their value."""
    # `out` is memory for the results, both in torch's functions and in ours.
    free = {"return", "out", *ignored, *(WISHES if op_of(call.call) else ())}
    # Only the mapped attributes of a module count, because a module may hold any others.
    modules = [f"{argument.name}." for argument in call.arguments if isinstance(argument.value, CapturedModule)]
    found = []
    for name, value in call.values().items():
        if name.startswith(tuple(modules)) or name in taken or name in free or name.partition("[")[0] in free:
            continue
        if isinstance(value, CapturedTensor):
            found.append(name)
        elif isinstance(value, CapturedScalar) and value.type == "str":
            found.append(f"{name}={value.value!r}")
    return found


def refuse_another_op(request: DraftRequest) -> None:
    """Raise BadFile if the calls are those of another op of ours.

    Some ops take the same arguments: only the name distinguishes a call of layer_norm from one of rms_norm.
    """
    called = op_of(request.call)
    if called not in (None, request.op.name):
        raise BadFile(
            request.source, "call", f"holds calls of {called}, not of {request.op.name}",
            f"--op {called}; or --call {request.call}, if {request.op.name} is to have its shapes",
        )  # fmt: skip
