"""OpDraft: the definitions file of an op, drafted from a function of the user's program and its captured calls."""

from __future__ import annotations

import itertools
import keyword
import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from kernwright.admission.function_source import INDENT, CopiedCode, FunctionSource, find_source
from kernwright.admission.op_parameters import OpParameters, read_parameters, returned_places
from kernwright.capture.capture import Capture, CapturedCall, CapturedTensor
from kernwright.core.errors import BadFile, KernwrightError

DEFINITIONS = "ops.py"
MOST_TRIAL_BYTES = 2**28  # largest total size of the inputs of a trial call
RESERVED = {"out", "self", "return"}
LINE = 110  # longer signatures are written with one parameter per line

OPENING = '''"""The op {name}, drafted by `kernwright task new --draft-op {call}`.

The function below defines the op: it is the eager baseline, and in float64 the oracle that outputs are compared with.
Read it and the arguments of @define, correct them where needed, then run `kernwright task check`.
"""

from __future__ import annotations

'''


@dataclass(frozen=True, kw_only=True)
class OpDraft:
    """A definitions file, with what the author of the task needs to know."""

    op: str
    heading: str  # the op's signature
    call: str  # the function in the capture
    text: str
    mapping: Mapping[str, str]  # the place in the call of each tensor, scalar and output of the op
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Results:
    """The results of the function: the op's outputs by place, and the arguments that a call changes."""

    outputs: dict[str, str]
    inplace: tuple[str, ...] = ()
    indices: tuple[tuple[str, str], ...] = ()
    returned: int = 1  # places that the function returns, including changed arguments

    @property
    def as_returned(self) -> bool:
        """Return True if the function returns exactly the outputs of the op, as one tensor or as a flat tuple."""
        places = list(self.outputs.values())
        flat = places == ["return"] or places == [f"return[{number}]" for number in range(len(places))]
        return len(places) == self.returned and (flat or not places)


def draft_op(capture: Capture, target: str, name: str | None, source_file: Path) -> OpDraft:
    """Draft the op that a captured function computes.

    Args:
        target: the function. The capture may name it in another way: `model.py:gate` and `model:gate` are the same.
        name: the op's name; by default that of the function.
        source_file: the capture file, for errors.
    """
    call = _captured(capture, target, source_file)
    calls = [own for own in capture.of(call) if own.raised is None]
    source = find_source(target, capture.header.program)
    parameters = read_parameters(target, calls, source)
    op = name or _op_name(target)
    writer = _Writer(op, target, source, parameters)
    if op in writer.bound_names:
        raise KernwrightError(
            f"--draft-op {target}: the function calls another {op}, and {DEFINITIONS} holds only one",
            f"choose another name for the op: --op {op}_op",
        )
    results = _Results(_output_names(calls, source, parameters), returned=_returned(calls))
    notes: list[str] = []
    function = writer.function(results, notes)
    if function is not None:
        results = _tried(function, parameters, calls, results, notes)
    if not results.outputs and not results.inplace:
        raise KernwrightError(
            f"--draft-op {target}: its calls returned no tensor and changed no argument",
            "an op returns tensors or changes its arguments: draft one from a function that does",
        )
    mapping = parameters.mapping | results.outputs
    if failure := capture.header.failure:
        notes.append(f"the captured program {failure}, so {source_file} may lack calls")
    return OpDraft(
        op=op,
        heading=f"op {op}({parameters.signature}) gives {', '.join([*results.outputs, *results.inplace])}",
        call=call,
        text=writer.text(results),
        mapping=mapping,
        notes=(*notes, *writer.notes()),
    )


def _captured(capture: Capture, target: str, source_file: Path) -> str:
    """Return the name under which the capture holds the calls of a function."""
    function = target.rpartition(":")[2]
    known = sorted({own.call for own in capture.calls})
    alike = [call for call in known if call.rpartition(":")[2] == function]
    call = target if target in known else alike[0] if len(alike) == 1 else None
    if call is None or all(own.raised for own in capture.of(call)):
        problem = f"holds no call of {target}" if call is None else f"every call of {target} ended with an exception"
        held = f"it holds calls of: {', '.join(known)}" if known else "it holds no calls"
        if capture.header.failure:
            held += f", and the program itself {capture.header.failure}"
        raise BadFile(source_file, "", problem, f"{held}; capture again with --call {target}")
    return call


def _op_name(call: str) -> str:
    """Return the function's name; for `RMSNorm.forward` and `RMSNorm.__call__` it is `rms_norm`."""
    words = call.rpartition(":")[2].split(".")
    if len(words) > 1 and words[-1] in ("forward", "__call__"):
        words = words[:-1]
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", words[-1].strip("_")).lower() or "op"


def _returned(calls: Sequence[CapturedCall]) -> int:
    places = [place for place in calls[0].values() if place.partition("[")[0] == "return"]
    return len([place for place in places if calls[0].values()[place].kind != "scalar" or place != "return"])


def _output_names(
    calls: Sequence[CapturedCall], source: FunctionSource | None, parameters: OpParameters
) -> dict[str, str]:
    places = list(returned_places(calls))
    taken = {own.name for own in parameters.all} | RESERVED
    usual = [f"y{number}" for number in range(len(places))] if len(places) > 1 else ["y"] * len(places)
    keys = [place[len("return[") : -1] for place in places]
    if places and all(key.isidentifier() and not keyword.iskeyword(key) for key in keys):  # a dict
        names = keys
    else:
        written = [names for names in (source.returned_names() if source else []) if len(names) == len(places)]
        names = written[-1] if len(places) > 1 and written and len(set(written[-1])) == len(places) else usual
    return {(f"{name}_out" if name in taken else name): place for name, place in zip(names, places, strict=True)}


class _Writer:
    """Writes the definitions file."""

    def __init__(self, op: str, call: str, source: FunctionSource | None, parameters: OpParameters) -> None:
        self.op = op
        self.call = call
        self.source = source
        self.parameters = parameters
        self.needed = source.needed_code("\n".join(self._made())) if source else CopiedCode()

    @property
    def bound_names(self) -> set[str]:
        """The names of imports and copied helpers, which the op cannot have."""
        imported = {text.split()[-1].partition(".")[0] for text in self.needed.imports}
        return {*imported, *self.needed.helpers, "torch", "Tensor", "define", "wide"}

    def notes(self) -> list[str]:
        found = [
            f"{DEFINITIONS} imports {module} of your project, which the judge's processes must find: install your "
            "project, or copy the code that is needed"
            for module in self.needed.own_modules
        ]
        if self.source is not None and (left_out := self.source.decorators):
            found.append(f"left out: {', '.join(left_out)}; if it changes what a call computes, change the draft, too")
        return found

    def function(self, results: _Results, notes: list[str]) -> Any:
        """Return the function without the decorator, to try it; None if it cannot be executed here."""
        scope: dict[str, Any] = {"__name__": "kernwright_draft"}
        try:
            exec(compile(self.text(results, decorated=False), DEFINITIONS, "exec", dont_inherit=True), scope)
        except Exception as error:  # any error of the user's code
            notes.append(f"{DEFINITIONS} could not be executed: {type(error).__name__}: {error}")
            return None
        return scope[self.op]

    def text(self, results: _Results, *, decorated: bool = True) -> str:
        body = self._plain_body()
        wrapped = not results.as_returned
        uses_wide = any("wide(" in line for line in [*body, *self.needed.helpers.values()])
        parts = [OPENING.format(name=self.op, call=self.call), self._imports(uses_wide), self._copied()]
        if wrapped:
            parts.append(self._definition(f"_{self.op}", self.source.summary if self.source else "", body, ""))
            body = self._unpacking(results)
        decorator = self._decorator(results) if decorated else ""
        returns = {0: "None", 1: "Tensor"}.get(len(results.outputs), _tuple_type(len(results.outputs)))
        summary = (self.source.summary if self.source else "") or f"Drafted from calls of {self.call}."
        parts.append(decorator + self._definition(self.op, summary, body, f" -> {returns}"))
        return "\n\n".join(part.strip("\n") + "\n" for part in parts if part).replace("\n\n\nimport", "\n\nimport")

    def _imports(self, uses_wide: bool) -> str:
        lines = ["import torch", "from torch import Tensor", *self.needed.imports]
        if self.source is None:
            lines.append(f"import {self.call.rpartition(':')[0]}")
        own = ["from kernwright.core.op import define"]
        if uses_wide:
            own.append("from kernwright.core.rounding import wide")
        return "\n".join([*sorted(set(lines), key=lambda line: (line.startswith("from"), line)), "", *own])

    def _copied(self) -> str:
        texts = list(dict.fromkeys(self.needed.helpers.values()))
        if not texts:
            return ""
        files = ", ".join(Path(file).name for file in self.needed.files)
        return f"# Copied from {files}.\n" + "\n\n\n".join(texts)

    def _plain_body(self) -> list[str]:
        """Return the body of the captured function, after lines that make its arguments from the op's parameters."""
        if self.source is None:
            return [f"return {self._foreign_call()}"]
        return [*self._made(), *self.source.body(self.parameters.attributes)]

    def _made(self) -> list[str]:
        """Return the lines that make the function's arguments from the op's parameters."""
        own = {parameter.name for parameter in self.parameters.all}
        return [
            f"{name} = {text}{'  # the same in every captured call' if _is_constant(text) else ''}"
            for name, text in self.parameters.arguments.items()
            if name != text or name not in own
        ]

    def _foreign_call(self) -> str:
        """Return the call of a function of an installed package."""
        module, _, path = self.call.rpartition(":")
        words = [
            text if not name.isidentifier() else f"{name}={text}"
            for name, text in self.parameters.arguments.items()
            if text != "None"
        ]
        return f"{module}.{path}({', '.join(words)})"

    def _definition(self, name: str, summary: str, body: Sequence[str], returns: str) -> str:
        signature = self.parameters.signature
        if len(signature) > LINE - len(name) - len(returns):
            signature = "\n" + "".join(f"{INDENT}{word},\n" for word in signature.split(", "))
        lines = [f"def {name}({signature}){returns}:"]
        if summary:
            lines.append(f'{INDENT}"""{summary}"""'.replace("\\", "\\\\"))
        lines += [f"{INDENT}{line}" if line.strip() else "" for line in body]
        return "\n".join(lines)

    def _unpacking(self, results: _Results) -> list[str]:
        places = list(results.outputs.values())
        call = f"_{self.op}({self.parameters.passed_on})"
        if not places:
            return [call]
        values = ", ".join("result" + _subscript(place.removeprefix("return")) for place in places)
        return [f"result = {call}", f"return {values}"]

    def _decorator(self, results: _Results) -> str:
        fields = [
            (f"outputs={_listed(results.outputs)},", "the results, in the order in which they are returned"),
            (
                f"activations={_listed(self.parameters.activations(dict(results.indices).values()))},",
                "inputs that carry data; they are also tested with extreme values",
            ),
        ]
        if results.inplace:
            fields.append((f"inplace={_listed(results.inplace)},", "inputs that a call changes"))
        if integers := [tensor.name for tensor in self.parameters.tensors if not tensor.is_floating]:
            known = dict(results.indices)
            shown = ", ".join(f'"{name}": "{table}"' for name, table in known.items())
            others = ", ".join(name for name in integers if name not in known)
            told = f"; {others} gets values 0 and 1" if others else ""
            fields.append((f"indices={{{shown}}},", f"tensors of row numbers, each with its table{told}"))
        fields.append(('contract="close",', 'no less accurate than this function; "exact" asks for the same bits'))
        return "@define(\n" + "".join(f"{INDENT}{text}  # {comment}\n" for text, comment in fields) + ")\n"


def _is_constant(expression: str) -> bool:
    return expression == "None" or expression.startswith("torch.")


def _tuple_type(count: int) -> str:
    return f"tuple[{', '.join(['Tensor'] * count)}]"


def _listed(names: Sequence[str] | Mapping[str, str]) -> str:
    return "[" + ", ".join(f'"{name}"' for name in names) + "]"


def _subscript(path: str) -> str:
    """Return `[0]` and `[mean]` of a captured place as Python: `[0]` and `["mean"]`."""
    words = [word.rstrip("]") for word in path.split("[") if word]
    return "".join(f"[{word}]" if word.isdigit() else f'["{word}"]' for word in words)


# The trial call


def _tried(
    function: Any, parameters: OpParameters, calls: Sequence[CapturedCall], results: _Results, notes: list[str]
) -> _Results:
    """Call the function once on small random tensors, to see which arguments it changes and which are row numbers."""
    call = min(calls, key=_bytes_of)
    if _bytes_of(call) > MOST_TRIAL_BYTES:
        notes.append("not tried: every captured call is large; check `inplace` in the draft")
        return results
    values = call.values()
    generator = torch.Generator().manual_seed(0)
    tensors = {
        tensor.name: _filled(value, generator)
        if isinstance(value := values.get(tensor.source), CapturedTensor)
        else None
        for tensor in parameters.tensors
    }
    before = {name: tensor.clone() for name, tensor in tensors.items() if tensor is not None}
    scalars = {own.name: getattr(values.get(own.source), "value", own.default) for own in parameters.scalars}
    lookups = _Lookups({name: tensor for name, tensor in tensors.items() if tensor is not None})
    try:
        with lookups:
            returned = function(*tensors.values(), **scalars)
    except Exception as error:  # any error of the user's code; the draft is tried again on the shapes of every call
        notes.append(f"not tried: the function failed on random inputs on a CPU: {_first_line(error)}")
        return results
    changed = [name for name, old in before.items() if not _same(tensors[name], old)]
    given = returned if isinstance(returned, tuple | list) else [] if returned is None else [returned]
    is_argument = [
        any(_shares(value, tensors[name]) for name in changed) if isinstance(value, Tensor) else False
        for value in given
    ]
    outputs = dict(results.outputs)
    if len(given) == len(outputs):  # a changed argument that is returned as well is no output
        kept = [not flag for flag in is_argument]
        outputs = dict(itertools.compress(outputs.items(), kept))
        unchanged = [tensor for name, tensor in tensors.items() if name not in changed]
        views = [n for n, v in zip(results.outputs, given, strict=True) if any(_shares(v, t) for t in unchanged)]
        if views:
            notes.append(f"an argument and {', '.join(views)} share memory, which an output must not: add .clone()")
    return _Results(outputs, tuple(changed), tuple(lookups.found.items()), results.returned)


def _bytes_of(call: CapturedCall) -> int:
    return sum(8 * math.prod(value.shape) for value in call.values().values() if isinstance(value, CapturedTensor))


def _filled(value: CapturedTensor, generator: torch.Generator) -> Tensor:
    dtype = getattr(torch, value.dtype)
    dense = torch.randn(value.shape, generator=generator) if dtype.is_floating_point else torch.zeros(value.shape)
    return dense.to(dtype)


def _same(tensor: Tensor | None, before: Tensor) -> bool:
    return tensor is not None and torch.equal(torch.nan_to_num(tensor), torch.nan_to_num(before))


def _shares(value: Any, tensor: Tensor | None) -> bool:
    if not isinstance(value, Tensor) or tensor is None or not tensor.numel():
        return False
    return value.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr()


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return textwrap.shorten(f"{type(error).__name__}: {lines[0] if lines else ''}", 160)


class _Lookups(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes which integer tensors pick rows of which tables."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._names = {tensor.untyped_storage().data_ptr(): name for name, tensor in tensors.items()}
        self.found: dict[str, str] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in LOOKUPS:
            rest = [item for value in args[1:] for item in (value if isinstance(value, list) else [value])]
            flat = [*args[:1], *rest]
            named = [self._names.get(t.untyped_storage().data_ptr()) for t in flat if isinstance(t, Tensor)]
            integer = [t for t in flat[1:] if isinstance(t, Tensor) and not t.is_floating_point()]
            if len(named) > 1 and named[0] and integer:
                name = self._names.get(integer[0].untyped_storage().data_ptr())
                if name and name != named[0]:
                    self.found[name] = named[0]
        return func(*args, **(kwargs or {}))


LOOKUPS = {
    torch.ops.aten.embedding.default,
    torch.ops.aten.index.Tensor,
    torch.ops.aten.index_select.default,
}
