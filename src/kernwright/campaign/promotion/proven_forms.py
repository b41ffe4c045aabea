"""The forms of calls that a verdict proves, for the requirements of a promoted kernel."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from kernwright.core.op import Op
from kernwright.judge.numerics.cases import neighbour_sizes
from kernwright.tasks.task import Task
from kernwright.tasks.tensor import TensorSpec
from kernwright.tasks.workload import Workload

FEWEST_SIZES = 3  # judged sizes of an axis, odd and even ones among them, from which all sizes between count as proven

Values = dict[str, set[Any]]


def proven_forms(task: Task, op: Op, judged: Collection[str]) -> list[dict[str, Any]]:
    """Return the forms of the judged rows of an op, as a promoted kernel reads them.

    Rows that differ only in sizes and in numbers share a form. A tensor whose address was judged with an offset is left
    out, since a kernel may rely on that address.
    """
    structures: dict[str, dict[str, Any]] = {}
    axes: dict[str, Values] = defaultdict(lambda: defaultdict(set))
    numbers: dict[str, Values] = defaultdict(lambda: defaultdict(set))
    for row in (*task.rows, *task.grid_rows):
        if row.id not in judged or row.op != op.name or any(spec.offset for spec in row.inputs.values()):
            continue
        scalars = op.scalar_defaults | row.scalars
        exact = {name: value for name, value in scalars.items() if not _is_number(value)}
        structure = _structure(row, op)
        key = json.dumps([structure, exact], sort_keys=True)
        structures[key] = structure
        for sizes in _judged_sizes(row, task.file.neighbours):
            for axis, size in sizes.items():
                axes[key][axis].add(size)
        for name, value in scalars.items():
            numbers[key][name].add(value)
    return [
        {
            **structure,
            "axes": {axis: _range_of_sizes(sizes) for axis, sizes in sorted(axes[key].items())},
            "scalars": {name: _range_of_scalar(values) for name, values in sorted(numbers[key].items())},
        }
        for key, structure in sorted(structures.items())
    ]


def _is_number(value: Any) -> bool:
    return isinstance(value, float)


def _structure(row: Workload, op: Op) -> dict[str, Any]:
    free = _bindable_axes(row)
    names = [parameter.name for parameter in op.tensor_parameters]
    return {
        "tensors": {n: _tensor(row.inputs[n], row.axes, free) if n in row.inputs else None for n in names},
        "outputs": {n: _tensor(spec, row.axes, free) for n, spec in row.outputs.items()},
    }


def _bindable_axes(row: Workload) -> set[str]:
    """Return the axes that a call shows: those that are a whole size of an input, not only a part of one."""
    return {size for spec in row.inputs.values() for size in spec.shape if isinstance(size, str) and size in row.axes}


def _tensor(spec: TensorSpec, axes: Mapping[str, int], free: set[str]) -> dict[str, Any]:
    concrete = spec.at(axes)
    shape = [
        size if isinstance(size, str) and TensorSpec(shape=(size,), dtype=spec.dtype).axes <= free else number
        for size, number in zip(spec.shape, concrete.shape, strict=True)
    ]
    layout = list(spec.strides) if spec.strides is not None else spec.layout or "dense"
    return {"dtype": spec.dtype, "shape": shape, "layout": layout}


def _judged_sizes(row: Workload, neighbours: Sequence[str]) -> Iterator[Mapping[str, int]]:
    free = _bindable_axes(row)
    yield {axis: size for axis, size in row.axes.items() if axis in free}
    if row.set != "grid":
        own = {axis: row.axes[axis] for axis in neighbours if axis in free}
        yield from neighbour_sizes(own, row.has_strided_tensors)


def _range_of_sizes(sizes: set[int]) -> dict[str, Any]:
    """Return all sizes between the judged ones if odd and even sizes above 1 were judged, else the judged sizes."""
    is_varied = len(sizes) >= FEWEST_SIZES and {size % 2 for size in sizes if size > 1} == {0, 1}
    return {"least": min(sizes), "most": max(sizes)} if is_varied else {"one_of": sorted(sizes)}


def _range_of_scalar(values: set[Any]) -> dict[str, Any]:
    if len(values) > 1 and all(map(_is_number, values)):
        return {"least": min(values), "most": max(values)}
    return {"one_of": sorted(values, key=repr)}
