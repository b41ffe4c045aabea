"""Strangers: what a captured call was given and the op does not take. Left out in silence, another function's call
would be frozen as the op's."""

from __future__ import annotations

from collections.abc import Collection

from kernwright.admission.captured_row import Request
from kernwright.capture.capture import Capture, CapturedCall, CapturedScalar, CapturedTensor
from kernwright.capture.own_ops import WISHES, op_of
from kernwright.core.errors import BadFile, KernwrightError


def refuse_strangers(capture: Capture, request: Request, ignored: Collection[str]) -> None:
    """A call with a tensor that the op does not take, or a text, which picks what is computed, is no call of the op.
    A number may be anything: that it was not used is said in a note."""
    own = (*(parameter.name for parameter in request.op.tensor_parameters), *request.op.scalar_defaults)
    taken = {*request.mapping.values(), *(name for name in own if name not in request.mapping)}
    met: set[str] = set()
    for number, call in enumerate(capture.calls, 2):
        if call.call != request.call or call.raised:
            continue
        met |= {argument.name for argument in call.arguments} | {*call.values()}
        if strangers := _strangers(call, taken, ignored):
            raise BadFile(
                f"{request.source}:{number}", ", ".join(strangers),
                f"is nothing that {request.op.name} takes: the call is another function's",
                f"choose the --op that was called; {request.op.name} takes {', '.join(own)}: --map NAME=ARGUMENT says "
                "where they are; --ignore leaves out an argument that no result depends on",
            )  # fmt: skip
    if unknown := sorted({*ignored} - met):
        raise KernwrightError(
            f"--ignore {unknown[0]}: {request.call} has no such argument", f"it has: {', '.join(sorted(met))}"
        )


def _strangers(call: CapturedCall, taken: Collection[str], ignored: Collection[str]) -> list[str]:
    """Tensors and texts of a call that the op does not take, texts with what they say."""
    # `out` is memory for the results, under that name in torch's functions as in ours.
    free = {"return", "out", *ignored, *(WISHES if op_of(call.call) else ())}
    found = []
    for name, value in call.values().items():
        if name in taken or name in free or name.partition("[")[0] in free:
            continue
        if isinstance(value, CapturedTensor):
            found.append(name)
        elif isinstance(value, CapturedScalar) and value.type == "str":
            found.append(f"{name}={value.value!r}")
    return found


def refuse_another_op(request: Request) -> None:
    """Some ops take the same arguments: nothing but their names tells layer_norm's calls from rms_norm's."""
    called = op_of(request.call)
    if called not in (None, request.op.name):
        raise BadFile(
            request.source, "call", f"holds calls of {called}, not of {request.op.name}",
            f"--op {called}; or --call {request.call}, if {request.op.name} is to have its shapes",
        )  # fmt: skip
