"""HotspotOp: the definitions file of an op that does the work of a hotspot, and the trace's shapes as a capture."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from kernwright.capture.capture import (
    Capture,
    CapturedArgument,
    CapturedCall,
    CapturedList,
    CapturedScalar,
    CapturedTensor,
    CaptureHeader,
)
from kernwright.core.errors import KernwrightError
from kernwright.diagnose.hotspots.diagnosis import Diagnosis
from kernwright.diagnose.hotspots.hotspot import Hotspot
from kernwright.diagnose.task_draft.chain_function import CAPTURE_IT, ChainFunction

INDENT = "    "
OPENING = '''"""The op {name}, drafted by `kernwright task new --from-hotspot` from {trace}.

The function repeats the operators of the trace: {operators}.
A trace has their shapes and not which tensor is which: compare the function with the model's code before you use it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernwright.core.op import define
from kernwright.core.rounding import wide

'''


@dataclass(frozen=True, kw_only=True)
class HotspotOp:
    """An op drafted from a hotspot.

    Attributes:
        call: the name under which the capture has its calls.
        text: the definitions file.
        mapping: by output of the op, its place in the captured calls.
    """

    name: str
    call: str
    text: str
    capture: Capture
    mapping: dict[str, str]
    notes: tuple[str, ...]


def hotspot_of(diagnosis: Diagnosis, place: str) -> Hotspot:
    """Return the hotspot with a rank, such as `3`, or with a name.

    Raises:
        KernwrightError: if there is none.
    """
    found = next((h for h in diagnosis.hotspots if place in (str(h.rank), h.name)), None)
    if found is None:
        raise KernwrightError(
            f"{diagnosis.trace.path} has no hotspot {place!r}; it has {len(diagnosis.hotspots)}",
            f"kernwright hotspots {diagnosis.trace.path} lists them with their numbers",
        )
    return found


def draft_op_of(hotspot: Hotspot, trace: Path, name: str | None) -> HotspotOp:
    """Draft the op of a hotspot.

    Raises:
        KernwrightError: if the trace lacks its operators or shapes.
    """
    works = [work for work in hotspot.works if work.calls]
    if not works:
        cause = f"the trace does not tell which operators launched {hotspot.name}"
        raise KernwrightError(cause, f"record a run without CUDA graphs and with record_shapes=True, or {CAPTURE_IT}")
    longest = max(works, key=lambda work: work.us)
    kept = longest.pattern.kept if longest.pattern else frozenset()
    function = ChainFunction.of(longest.calls, kept)
    op = name or _op_name(hotspot)
    calls: dict[str, CapturedCall] = {}
    left_out = 0
    for work in works:
        own = ChainFunction.of(work.calls, kept)
        if own.lines != function.lines and _shapeless(own.lines) != _shapeless(function.lines):
            left_out += 1
            continue
        call = _captured(op, own)
        key = call.model_dump_json()
        calls[key] = call.model_copy(update={"count": calls[key].count + 1 if key in calls else 1})
    notes = [*function.notes, *([f"{left_out} occurrence(s) with another data flow were left out"] if left_out else [])]
    outputs = _output_names(function)
    return HotspotOp(
        name=op,
        call=f"trace:{op}",
        text=_text(op, function, hotspot, trace),
        capture=Capture(
            header=CaptureHeader(program=trace.name, targets=(f"trace:{op}",)), calls=tuple(calls.values())
        ),
        mapping=dict(zip(outputs, _places(len(outputs)), strict=True)),
        notes=tuple(notes),
    )


def _op_name(hotspot: Hotspot) -> str:
    words = re.findall(r"[a-z][a-z0-9]*", hotspot.name.lower())
    return "_".join(words[:6]) or "hotspot"


def _shapeless(lines: Sequence[str]) -> list[str]:
    return [re.sub(r"\d+", "0", line) for line in lines]


def _captured(op: str, function: ChainFunction) -> CapturedCall:
    tensors = [CapturedArgument(name=name, value=_tensor(value)) for name, value in function.inputs.items()]
    scalars = [CapturedArgument(name=name, value=CapturedScalar(type="float", value=1.0)) for name in function.scalars]
    results = [_tensor(value) for value in function.outputs.values()]
    returns = results[0] if len(results) == 1 else CapturedList(items=tuple(results))
    return CapturedCall(call=f"trace:{op}", arguments=(*tensors, *scalars), returns=returns, count=1)


def _tensor(value: Tensor) -> CapturedTensor:
    return CapturedTensor(
        shape=tuple(value.shape),
        dtype=str(value.dtype).removeprefix("torch."),
        strides=tuple(value.stride()),
        device="cuda:0",
    )


def _output_names(function: ChainFunction) -> list[str]:
    count = len(function.outputs)
    return ["y"] if count == 1 else [f"y{number}" for number in range(1, count + 1)]


def _places(count: int) -> list[str]:
    return ["return"] if count == 1 else [f"return[{number}]" for number in range(count)]


def _text(op: str, function: ChainFunction, hotspot: Hotspot, trace: Path) -> str:
    outputs = ", ".join(f'"{name}"' for name in _output_names(function))
    parameters = [f"{name}: Tensor" for name in function.inputs]
    if function.scalars:
        parameters += ["*", *(f"{name}: float = 1.0" for name in function.scalars)]
    count = len(function.outputs)
    returned = "Tensor" if count == 1 else f"tuple[{', '.join(['Tensor'] * count)}]"
    operators = ", ".join(dict.fromkeys(call.op.name for call in hotspot.works[0].calls if call.op))
    lines = [
        f"@define(outputs=[{outputs}], activations=[{_activations(function)}])",
        f"def {op}({', '.join(parameters)}) -> {returned}:",
        f'{INDENT}"""{hotspot.share:.1%} of the GPU time of {trace.name}."""',
        *(f"{INDENT}{line}" for line in function.lines),
        f"{INDENT}return {', '.join(function.outputs)}",
    ]
    opening = OPENING.format(name=op, trace=trace.name, operators=operators)
    if "wide(" not in "".join(function.lines):
        opening = opening.replace("from kernwright.core.rounding import wide\n", "")
    if "torch." not in "".join(function.lines):
        opening = opening.replace("import torch\n", "")
    return f"{opening}\n" + "\n".join(lines) + "\n"


def _activations(function: ChainFunction) -> str:
    """Return the inputs that carry data: those with as many elements as the largest one."""
    most = max(value.numel() for value in function.inputs.values())
    return ", ".join(f'"{name}"' for name, value in function.inputs.items() if value.numel() == most)
