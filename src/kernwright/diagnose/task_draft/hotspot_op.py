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
    CapturedTensor,
    CaptureHeader,
)
from kernwright.core.errors import KernwrightError
from kernwright.diagnose.hotspots.gpu_work import GpuWork
from kernwright.diagnose.hotspots.hotspot import Hotspot
from kernwright.diagnose.hotspots.trace_diagnosis import Diagnosis
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
            f"kernwright hotspots {diagnosis.trace.path} --least 0 lists them with their numbers",
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
    flow = _main_flow(works)
    longest, function = max(flow, key=lambda pair: pair[0].us)
    _refuse_complex(hotspot, function)
    left_out = len(works) - len(flow)
    op = name or _op_name(hotspot)
    calls: dict[str, CapturedCall] = {}
    for _, own in flow:
        call = _captured(op, own)
        key = call.model_dump_json()
        calls[key] = call.model_copy(update={"count": calls[key].count + 1 if key in calls else 1})
    notes = [*function.notes, *([f"{left_out} occurrence(s) with another data flow were left out"] if left_out else [])]
    outputs = _output_names(function)
    return HotspotOp(
        name=op,
        call=f"trace:{op}",
        text=_text(op, function, longest, hotspot, trace),
        capture=Capture(
            header=CaptureHeader(program=trace.name, targets=(f"trace:{op}",)), calls=tuple(calls.values())
        ),
        mapping=dict(zip(outputs, _places(len(outputs)), strict=True)),
        notes=tuple(notes),
    )


def _op_name(hotspot: Hotspot) -> str:
    words = re.findall(r"[a-z][a-z0-9]*", hotspot.name.lower())
    return "_".join(words[:6]) or "hotspot"


def _main_flow(works: Sequence[GpuWork]) -> list[tuple[GpuWork, ChainFunction]]:
    """Return the occurrences with the data flow that takes the most GPU time, each with its function."""
    flows: dict[tuple[str, ...], list[tuple[GpuWork, ChainFunction]]] = {}
    for work in works:
        own = ChainFunction.of(work.calls, work.pattern.kept if work.pattern else ())
        flows.setdefault(_data_flow(own), []).append((work, own))
    return max(flows.values(), key=lambda flow: sum(work.us for work, _ in flow))


def _data_flow(function: ChainFunction) -> tuple[str, ...]:
    """Return the lines without sizes and other numbers. Numbers in names of variables and dtypes stay."""
    return (*function.inputs, *(re.sub(r"\b\d+", "0", line) for line in function.lines))


def _refuse_complex(hotspot: Hotspot, function: ChainFunction) -> None:
    for name, value in function.inputs.items():
        if value.is_complex():
            raise KernwrightError(
                f"hotspot {hotspot.rank} ({hotspot.name}): {name} is {_dtype(value)}; tasks have no complex tensors",
                "capture a function that takes real tensors, as torch.view_as_real gives them, then: "
                "kernwright task new NAME --from CAPTURE",
            )


def _captured(op: str, function: ChainFunction) -> CapturedCall:
    """Return an occurrence as a call. It leaves numbers of unknown value out, so that the op's defaults count."""
    tensors = [CapturedArgument(name=name, value=_tensor(value)) for name, value in function.inputs.items()]
    results = [_tensor(value) for value in function.outputs.values()]
    returns = results[0] if len(results) == 1 else CapturedList(items=tuple(results))
    return CapturedCall(call=f"trace:{op}", arguments=tuple(tensors), returns=returns, count=1)


def _tensor(value: Tensor) -> CapturedTensor:
    return CapturedTensor(
        shape=tuple(value.shape),
        dtype=_dtype(value),
        strides=tuple(value.stride()),
        device="cuda:0",
    )


def _dtype(value: Tensor) -> str:
    return str(value.dtype).removeprefix("torch.")


def _output_names(function: ChainFunction) -> list[str]:
    count = len(function.outputs)
    return ["y"] if count == 1 else [f"y{number}" for number in range(1, count + 1)]


def _places(count: int) -> list[str]:
    return ["return"] if count == 1 else [f"return[{number}]" for number in range(count)]


def _text(op: str, function: ChainFunction, longest: GpuWork, hotspot: Hotspot, trace: Path) -> str:
    outputs = ", ".join(f'"{name}"' for name in _output_names(function))
    parameters = [f"{name}: Tensor" for name in function.inputs]
    if function.scalars:
        parameters += ["*", *(f"{name}: float = 1.0" for name in function.scalars)]
    count = len(function.outputs)
    returned = "Tensor" if count == 1 else f"tuple[{', '.join(['Tensor'] * count)}]"
    operators = ", ".join(dict.fromkeys(call.op.name for call in longest.calls if call.op))
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
    """Return the first floating-point input, and those that have its shape."""
    floating = [name for name, value in function.inputs.items() if value.is_floating_point()] or list(function.inputs)
    shape = function.inputs[floating[0]].shape
    return ", ".join(f'"{name}"' for name in floating if function.inputs[name].shape == shape)
