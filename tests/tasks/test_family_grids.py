"""The shipped grids: every combination in a family's correctness contract is a row, and none is timed.

The lists here are those of the contracts. task.toml names the combinations that a family cannot express, and these
tests check that too.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch

from kernwright.campaign.tuning.trial import placed
from kernwright.judge.numerics.content_pool import ContentPool
from kernwright.tasks.catalog import find_task, list_tasks
from kernwright.tasks.task import Task
from kernwright.tasks.workload import Workload

TASKS = {name: find_task(name) for name in list_tasks()}
HALVES_AND_FULL = ("fp16", "bf16", "fp32")
TOKENS = (6, 33, 128, 257)
WIDTHS = (512, 1024, 1536, 3072)
SHAPES_BSFD = ((1, 1024, 8, 3072), (4, 512, 16, 3072))
LAYOUTS: dict[tuple[int | str, ...], str] = {
    ("B", "F*P", "D"): "BSD", (1,): "1", (1, "F*P", "D"): "1SD", ("B", "D"): "BD", ("B", 1, "D"): "B1D", ("D",): "D",
    (1, "D"): "1D", (1, 1, "D"): "11D", ("B", "F", 1, "D"): "BF1D",
}  # fmt: skip


def grid_of(task: str, op: str | None = None) -> tuple[Workload, ...]:
    return TASKS[task].select("grid", op=op)


def missing(rows: Iterable[Workload], of: Callable[[Workload], Any], *lists: Iterable[Any]) -> set[Any]:
    """Return the combinations for which there is no row."""
    return set(itertools.product(*lists)) - {of(row) for row in rows}


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_rows_of_grids_have_ids_of_their_own_and_no_headline(task: Task) -> None:
    ids = Counter(row.id for row in task.select("all"))
    assert [id_ for id_, count in ids.items() if count > 1] == []
    assert {row.set for row in task.grid_rows} <= {"grid"}


def test_qknorm_rope() -> None:
    tokens = sorted({2**n + more for n in range(13) for more in (0, 1)})  # 1 to 5, 8, 9, 16, 17, ... 4096, 4097
    sizes = [(64, 64), (128, 64), (128, 128), (256, 64), (256, 128), (256, 256)]

    def found(row: Workload) -> Any:
        head, rope = row.inputs["q"].shape[-1], row.inputs["cos_sin_cache"].shape[-1]
        return row.axes["T"], row.axes["H"], (head, rope), row.scalars["is_neox"], row.inputs["positions"].dtype

    lists = tokens, (8, 16, 24, 32), sizes, (False, True), ("i32", "i64")
    assert not missing(grid_of("qknorm_rope"), found, *lists)


def test_qknorm_rope_reads_angles_that_begin_off_a_vector() -> None:
    rows = [row for row in grid_of("qknorm_rope") if row.inputs["cos_sin_cache"].offset * 4 % 16]

    def found(row: Workload) -> Any:
        return row.inputs["q"].shape[-1], row.scalars["is_neox"], row.inputs["positions"].dtype

    assert not missing(rows, found, (64, 128, 256), (False, True), ("i32", "i64"))


def test_norm_infer() -> None:
    def found(row: Workload) -> Any:
        return row.op, row.axes.get("B"), row.axes["S"], row.axes["D"], row.inputs["x"].dtype

    rows = grid_of("norm_infer")
    assert not missing(rows, found, ("layer_norm", "rms_norm"), (1, 2, 4), TOKENS, WIDTHS, HALVES_AND_FULL)
    assert not missing(rows, found, ("rms_norm",), (None,), (4096, 16384), (128,), HALVES_AND_FULL)


def test_group_norm_silu() -> None:
    rows = grid_of("group_norm_silu")

    def found(row: Workload) -> Any:
        return row.concrete_inputs()["x"].shape, row.inputs["x"].dtype, row.inputs["x"].offset > 0

    shapes = (2, 64, 32, 32), (1, 64, 4, 16, 16), (4, 128), (1, 128, 20, 256, 256)
    assert not missing(rows, found, shapes, HALVES_AND_FULL, (False,))
    assert not missing(rows, found, shapes[:2], HALVES_AND_FULL, (True,)), "a base that no vector begins at"
    assert any(row.inputs["x"].layout == "channels_last" for row in TASKS["group_norm_silu"].rows)


def test_rotary_embedding() -> None:
    tokens = (1, 2, 4, 8, 16, 32, 64, 128, 129, 256, 512, 1024, 2048, 2049)
    heads = {kv * ratio for kv in (1, 2, 8) for ratio in (1, 4, 8)} | {1, 2, 8}

    def found(row: Workload) -> Any:
        return row.axes["S"], row.axes["H"], row.concrete_inputs()["x"].shape[-1]

    assert not missing(grid_of("rotary_embedding", "rotary"), found, tokens, heads, (64, 128, 256, 512))


def test_combinations_missing_in_rotary_embedding_are_in_qknorm_rope() -> None:
    """These are is_neox and position_dtype, as its task.toml says."""
    rotary, rope = TASKS["rotary_embedding"].ops["rotary"], TASKS["qknorm_rope"].ops["qknorm_rope"]
    assert {parameter.name for parameter in rotary.tensor_parameters} == {"x", "cos", "sin"}
    assert not rotary.scalar_defaults
    assert "is_neox" in rope.scalar_defaults and "positions" in rope.indices
    assert all(word in TASKS["rotary_embedding"].file.origin for word in ("is_neox", "position_dtype", "qknorm_rope"))


def test_fuse_scale_shift() -> None:
    shapes: dict[tuple[int | str, ...], str] = {("B", "D"): "BC", ("B", "F", 1, "D"): "BF1C", ("B", 1, "D"): "B1C"}
    shapes |= {("B", "S", "D"): "BLC"}

    def found(row: Workload) -> Any:
        layout = shapes.get(row.inputs["scale"].shape)
        return row.axes["B"], row.concrete_inputs()["x"].shape[1], row.axes["D"], row.inputs["x"].dtype, layout

    rows = grid_of("fuse_scale_shift", "scale_shift")
    assert not missing(rows, found, (1, 2, 4), TOKENS, WIDTHS, HALVES_AND_FULL, ("BC", "B1C", "BLC"))
    frames = {found(row)[2:] for row in rows if found(row)[-1] == "BF1C"}
    assert not set(itertools.product(WIDTHS, HALVES_AND_FULL, ("BF1C",))) - frames


def _modulated(row: Workload) -> Any:
    b, f, p, d = (row.axes.get(axis) for axis in "BFPD")
    shape = (b, f * p, f, d) if f and p else None
    affine = "weight" in row.inputs and ("bias" in row.inputs or row.scalars["norm_type"] == "rms")
    return shape, row.inputs["x"].dtype, row.scalars["norm_type"], affine, LAYOUTS.get(row.inputs["scale"].shape)


MODULATED = SHAPES_BSFD, HALVES_AND_FULL, ("layer", "rms"), (True, False), LAYOUTS.values()


@pytest.mark.parametrize("op", ["norm_tanh_mul_add", "norm_tanh_mul_add_norm_scale"])
def test_norm_tanh_mul_add(op: str) -> None:
    rows = grid_of("norm_tanh_mul_add", op)
    assert not missing(rows, _modulated, *MODULATED)
    second = {"weight": "weight2", "bias": "bias2"} if op.endswith("scale") else {}
    assert all((own in row.inputs) == (other in row.inputs) for row in rows for own, other in second.items())


@pytest.mark.parametrize("op", ["norm_tanh_mul_add", "norm_tanh_mul_add_norm_scale"])
def test_norm_tanh_mul_add_reads_views_that_begin_off_a_vector(op: str) -> None:
    rows = [row for row in grid_of("norm_tanh_mul_add", op) if any(own.offset for own in row.inputs.values())]
    assert all(tensor.offset * tensor.item_bytes % 16 for row in rows for tensor in row.concrete_inputs().values())

    def found(row: Workload) -> Any:
        return row.inputs["x"].dtype, row.scalars["norm_type"]

    assert not missing(rows, found, HALVES_AND_FULL, ("layer", "rms"))


def test_norm_scale_shift() -> None:
    assert not missing(grid_of("norm_scale_shift", "norm_scale_shift"), _modulated, *MODULATED)


def test_a_residuals_gate_has_every_layout_with_every_scale() -> None:
    def found(row: Workload) -> Any:
        return (*_modulated(row), LAYOUTS[row.inputs["gate"].shape] if "gate" in row.inputs else "none")

    rows = grid_of("norm_scale_shift", "residual_norm_scale_shift")
    gates = (*LAYOUTS.values(), "none")
    assert not missing(rows, found, *MODULATED, gates)
    assert len(rows) == len(SHAPES_BSFD) * 3 * 2 * 2 * 9 * 10, "and none of them twice"


def test_residual_gate_add() -> None:
    def found(row: Workload) -> Any:
        return row.inputs["gate"].shape == row.inputs["update"].shape, row.inputs["gate"].dtype, row.axes["D"]

    rows = grid_of("residual_gate_add", "residual_gate")
    assert not missing(rows, found, (True, False), HALVES_AND_FULL, (1, 63, 100, 3071)), "odd, and no vector's multiple"
    frames = {row.axes["S"] for row in grid_of("residual_gate_add", "broadcast_add")}
    assert len(frames) > 1


def _half_of_heads(row: Workload, name: str) -> int | None:
    """Return the rank (0 or 1) whose half of the heads the tensor holds, or None if the tensor is dense."""
    own = row.concrete_inputs()[name]
    if own.is_contiguous and not own.offset:
        return None
    batch, tokens, heads, width = own.shape
    whole = torch.empty(batch, tokens, 2 * heads, width, device="meta")
    views = [whole[:, :, rank * heads : (rank + 1) * heads] for rank in (0, 1)]
    return [(view.stride(), view.storage_offset()) for view in views].index((own.strides, own.offset))


def test_attention_concat_copy() -> None:
    def sliced(row: Workload) -> Any:
        return tuple(_half_of_heads(row, name) for name in "ab"), row.inputs["a"].dtype, row.axes["H"] == 1

    rows = grid_of("attention_concat_copy", "concat_sequence")
    orders = (0, None), (1, None), (None, 0), (None, 1)  # which of the two is sliced, and for which rank
    assert not missing(rows, sliced, orders, HALVES_AND_FULL, (True, False))
    assert {row.concrete_inputs()[name].shape[1] for row in rows for name in "ab" if _half_of_heads(row, name)} >= {1}
    copies = grid_of("attention_concat_copy", "copy_contiguous")

    def copied(row: Workload) -> Any:
        return _half_of_heads(row, "a"), row.inputs["a"].dtype, row.axes["S"] == 1, row.axes["H"] == 1

    assert not missing(copies, copied, (0, 1), HALVES_AND_FULL, (True, False), (True, False))


def _lies(row: Workload) -> str:
    own = row.concrete_inputs()["x"]
    batch, channels, frames, height, width = own.shape
    turned = torch.empty(batch, channels, frames, width, height, device="meta").transpose(-1, -2).stride()
    if own.strides == turned:
        return "H/W transposed"
    assert own.is_contiguous
    return "storage offset" if own.offset * own.item_bytes % 16 else "contiguous"


def test_causal_conv3d_cat_pad() -> None:
    def found(row: Workload) -> Any:
        pads = tuple(row.scalars[name] for name in ("pad_w", "pad_h", "pad_t"))
        depth = row.inputs["cache"].shape[2] if "cache" in row.inputs else 0
        return depth, pads, _lies(row), row.inputs["x"].dtype

    layouts = "contiguous", "H/W transposed", "storage offset"
    lists = (0, 1, 2), ((1, 1, 2), (0, 0, 1)), layouts, HALVES_AND_FULL
    left_out = missing(grid_of("causal_conv3d_cat_pad"), found, *lists)
    assert left_out == set(itertools.product((2,), ((0, 0, 1),), layouts, HALVES_AND_FULL)), "two do not fit into one"


VIEWS = [
    row
    for name in ("attention_concat_copy", "causal_conv3d_cat_pad")
    for row in TASKS[name].grid_rows
    if row.bytes_min < 50_000 and any(own.strides or own.offset for own in row.inputs.values())
]


def test_views_give_the_bits_of_dense_tensors_with_their_values() -> None:
    """The chain runs on inputs with the row's layout, as the judge draws them. Its result is dense."""
    ops = TASKS["attention_concat_copy"].ops | TASKS["causal_conv3d_cat_pad"].ops
    assert {row.op for row in VIEWS} == set(ops) and len(VIEWS) > 300
    generator = torch.Generator().manual_seed(1)
    for row in VIEWS:
        op, scalars = ops[row.op], ops[row.op].scalar_defaults | row.scalars
        drawn = ContentPool.for_row(row, generator).draw(op, row)
        laid = {name: placed(own, torch.device("cpu"), drawn[name]) for name, own in row.concrete_inputs().items()}
        (out,), (wanted,) = op.call(laid, scalars), op.call(drawn, scalars)
        assert torch.equal(out, wanted), row.id
        assert tuple(out.shape) == row.concrete_outputs()["out"].shape and out.is_contiguous(), row.id
