"""Draft: a task made from a capture. Every recorded signature becomes a production row."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernwright.admission.captured_row import CapturedRow, DraftRequest, OtherResults, give, read_row
from kernwright.admission.mutants import result_specs
from kernwright.capture.capture import Capture, CapturedCall, CapturedScalar, CapturedTensor
from kernwright.core.errors import BadFile
from kernwright.core.op import Op
from kernwright.judge.numerics.cases import neighbour_sizes
from kernwright.tasks.axes import TOKENS, WIDTH, Names, name_axes, token_place
from kernwright.tasks.task import TaskFile, Tolerance
from kernwright.tasks.tensor import ConcreteTensor, TensorSpec
from kernwright.tasks.workload import Workload

SMOKE_BYTES = 5_000_000  # a smoke row's call takes milliseconds on a CPU
NO_ROW = "has no call that a row could be made from"
EXACT = Tolerance(atol=0.0, rtol=0.0)
TOLERANCES: dict[str, Tolerance] = {
    "bf16": Tolerance(atol=0.05, rtol=0.05),
    "fp16": Tolerance(atol=0.05, rtol=0.05),
    "fp32": Tolerance(atol=1e-5, rtol=1e-5),
    "fp64": Tolerance(atol=1e-10, rtol=1e-10),
}


@dataclass(frozen=True)
class Draft:
    """The content of task.toml and workloads.jsonl, and notes for the author."""

    file: TaskFile
    rows: tuple[Workload, ...]
    notes: tuple[str, ...]


def draft_task(capture: Capture, request: DraftRequest, definitions: str | None = None) -> Draft:
    notes: dict[str, None] = {}  # a set that keeps its order
    rows: dict[str, CapturedRow] = {}
    calls = capture.of(request.call)
    for number, call in enumerate(capture.calls, 2):
        if call.call == request.call and _usable(call, notes):
            try:
                row = read_row(f"{request.source}:{number}", call, request, notes)
            except OtherResults:
                if not (given := _settings_given(call, request)):
                    raise
                told = f"left out: {call.count} call(s) with {given}, of which {request.op.name}'s rows have none"
                notes[told] = None
                continue
            rows.setdefault(row.key, row)
    if not rows:
        raise BadFile(
            request.source, request.call, "; ".join([NO_ROW, *(note for note in notes if note.startswith("left out"))]),
            f"it holds: {', '.join(sorted({c.call for c in capture.calls})) or 'no calls'}",
        )  # fmt: skip
    production = _production(list(rows.values()), request, notes)
    smoke = _smoke(production, request.op, notes)
    dtypes = {t.dtype for row in production for t in row.results(request.op.inplace).values()}
    total = sum(call.count for call in calls)
    file = TaskFile(
        name=request.name,
        title=request.title or f"{request.op.name}, as {request.call} was called",
        origin=f"Production rows: {total} calls of {request.call} in {capture.header.program}, captured; "
        f"{len(production)} signatures. Smoke rows: the same, with fewer tokens where they are too large for a CPU.",
        definitions=definitions,
        neighbours=_neighbours(production, request.op),
        tolerance={dtype: TOLERANCES.get(dtype, EXACT) for dtype in sorted(dtypes)},
    )
    return Draft(file, (*production, *smoke), tuple(notes))


def _neighbours(rows: Sequence[Workload], op: Op) -> tuple[str, ...]:
    """Return every axis of a result, tokens first: odd neighbours of an axis catch kernels that skip its end."""
    named = {axis for row in rows for tensor in result_specs(op, row) for axis in tensor.axes}
    return tuple(sorted(named, key=lambda axis: (axis != TOKENS, axis != WIDTH, axis)))


def _settings_given(call: CapturedCall, request: DraftRequest) -> str:
    """Return the settings of the public call that the op itself does not have, if they differ from the defaults."""
    values = call.values()
    told = {name: value.value for name in request.settings if isinstance(value := values.get(name), CapturedScalar)}
    return ", ".join(f"{name}={value}" for name, value in told.items() if value != request.settings[name])


def _usable(call: CapturedCall, notes: dict[str, None]) -> bool:
    if call.raised:
        notes[f"left out: {call.count} call(s) that ended with {call.raised}"] = None
        return False
    if any(isinstance(value, CapturedTensor) and 0 in value.shape for value in call.values().values()):
        notes[f"left out: {call.count} call(s) with an empty tensor"] = None
        return False
    return True


def runs_at(op: Op, row: Workload, same_outputs: bool = True) -> bool:
    """Return whether the op runs at the sizes of a row and, with `same_outputs`, returns the outputs of the row."""
    try:
        given = give(op, row.concrete_inputs(), row.scalars)
    except NotImplementedError:
        return True
    except Exception:  # any error of the reference means that it does not run at this size
        return False
    return not same_outputs or all(given[n].shape == tensor.shape for n, tensor in row.concrete_outputs().items())


# Production rows


def _production(rows: list[CapturedRow], request: DraftRequest, notes: dict[str, None]) -> list[Workload]:
    groups: dict[object, list[CapturedRow]] = {}
    activations: dict[int, list[tuple[int, ...]]] = {}
    for row in rows:
        groups.setdefault(row.layout, []).append(row)
        shape = row.inputs[_main(row.inputs, request.op)].shape
        activations.setdefault(len(shape), []).append(shape)
    tokens = {count: token_place(shapes) for count, shapes in activations.items()}
    unnamed: dict[str, list[bool]] = {}
    workloads = [row for group in groups.values() for row in _named(group, request, tokens, unnamed)]
    for axis, needs_even in unnamed.items():
        sizes = "odd sizes" if any(needs_even) else "neighbouring sizes"
        count = f"{len(needs_even)} of {len(rows)} row(s)"
        notes[f"axis {axis} has no name in {count}: {request.op.name} does not run at {sizes} of it"] = None
    workloads = _with_ids(workloads, request.op)
    return sorted(workloads, key=lambda row: [int(p) if p.isdigit() else p for p in re.split(r"(\d+)", row.id)])


def _main(inputs: Mapping[str, object], op: Op) -> str:
    """Return the tensor that a row is named after."""
    return next((name for name in op.activations if name in inputs), next(iter(inputs)))


def _named(
    group: list[CapturedRow], request: DraftRequest, tokens: Mapping[int, int], unnamed: dict[str, list[bool]]
) -> list[Workload]:
    """Return the rows of a group with named axes.

    An axis keeps its name only if the op runs at neighbouring sizes of it in every row of the group. Otherwise
    `unnamed` gets an entry for each row under the name of the axis: whether the op runs at even sizes.
    """
    op = request.op
    main = _main(group[0].inputs, op)
    shapes = [{name: tensor.shape for name, tensor in (row.inputs | row.outputs).items()} for row in group]
    names = name_axes(shapes, main, tokens[len(shapes[0][main])])
    for axis in sorted(set(names.values())):
        rows = [_workload(row, names, request) for row in group]
        if not all(
            runs_at(op, row.resized(sizes))
            for row in rows
            for sizes in neighbour_sizes({axis: row.axes[axis]}, row.has_strided_tensors)
        ):
            # A row has no sizes that depend on other sizes, such as half the width after chunk(2).
            even = all(
                row.axes[axis] > 2
                and runs_at(op, row.resized({axis: row.axes[axis] - 2}), same_outputs=False)
                and not runs_at(op, row.resized({axis: row.axes[axis] - 1}), same_outputs=False)
                for row in rows
            )
            unnamed.setdefault(axis, []).extend([even] * len(group))
            names = {place: name for place, name in names.items() if name != axis}
    return [_workload(row, names, request) for row in group]


def _workload(row: CapturedRow, names: Names, request: DraftRequest) -> Workload:
    axes: dict[str, int] = {}

    def spec(name: str, tensor: ConcreteTensor) -> TensorSpec:
        shape: list[int | str] = list(tensor.shape)
        for place, size in enumerate(tensor.shape):
            if axis := names.get((name, place)):
                axes[axis] = size
                shape[place] = axis
        return TensorSpec(
            shape=tuple(shape),
            dtype=tensor.dtype,
            strides=None if tensor.is_contiguous else tensor.strides,
            offset=tensor.offset,
        )

    inputs = {name: spec(name, tensor) for name, tensor in row.inputs.items()}
    outputs = {name: spec(name, tensor) for name, tensor in row.outputs.items()}
    order = sorted(axes, key=lambda axis: (axis == WIDTH, axis))
    draft = Workload(
        id="draft", op=request.op.name, set="production", models=request.models, inputs=inputs, outputs=outputs,
        axes={axis: axes[axis] for axis in order}, scalars=row.scalars, bytes_min=1,
    )  # fmt: skip
    return draft.model_copy(update={"bytes_min": draft.fewest_bytes(request.op.inplace)})


def _with_ids(rows: list[Workload], op: Op) -> list[Workload]:
    """Return rows with ids made of sizes and dtype. Rows with equal ids get a fingerprint each."""
    plain = [_id(row, op) for row in rows]
    return [
        row.model_copy(update={"id": f"{name}_{_fingerprint(row)}" if plain.count(name) > 1 else name})
        for row, name in zip(rows, plain, strict=True)
    ]


def _id(row: Workload, op: Op) -> str:
    main = _main(row.inputs, op)
    tensor = row.concrete_inputs()[main]
    sizes = [
        f"{size.lower()}{row.axes[size]}" if isinstance(size, str) else str(size) for size in row.inputs[main].shape
    ]
    while len(sizes) > 1 and sizes[0] == "1":
        sizes = sizes[1:]
    return "_".join([op.name, *sizes, tensor.dtype])


def _fingerprint(row: Workload) -> str:
    text = row.model_dump_json(exclude={"id", "models", "sized_from", "set"})
    return hashlib.sha256(text.encode()).hexdigest()[:6]


# Smoke rows


def _smoke(production: Sequence[Workload], op: Op, notes: dict[str, None]) -> list[Workload]:
    """Return each production row at a size that a CPU can run. Rows that become equal are kept once."""
    kept: dict[str, Workload] = {}
    for row in production:
        small = _cut(row, op)
        if small is None:
            notes[f"{row.id} has no smoke row: no smaller size of it fits {SMOKE_BYTES / 1e6:g} MB"] = None
            continue
        kept.setdefault(small.model_dump_json(exclude={"models", "id", "sized_from"}), small)
    rows = [row.model_copy(update={"id": f"smoke_{_id(row, op)}"}) for row in kept.values()]
    ids = [row.id for row in rows]
    return [
        row.model_copy(update={"id": f"{row.id}_{_fingerprint(row)}"}) if ids.count(row.id) > 1 else row for row in rows
    ]


def _cut(row: Workload, op: Op) -> Workload | None:
    """Return the row, halved until it fits: tokens first, the width last because a kernel depends on it."""
    small = row
    order = sorted(row.axes, key=lambda axis: (axis == WIDTH, axis != TOKENS, axis))
    for axis in order:
        while small.fewest_bytes(op.inplace) > SMOKE_BYTES and small.axes[axis] > 1:
            half = small.resized({axis: small.axes[axis] // 2})
            if not runs_at(op, half):
                break
            small = half
    fewest = small.fewest_bytes(op.inplace)
    if fewest > SMOKE_BYTES:
        return None
    return small.model_copy(update={"set": "smoke", "sized_from": row.id, "bytes_min": fewest})
