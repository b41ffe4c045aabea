"""Drafting a task from a capture: the rows that calls become, and the messages for calls that do not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from kernwright.admission.captured_row import DraftRequest
from kernwright.admission.draft import SMOKE_BYTES, Draft, draft_task
from kernwright.admission.task_folder import task_toml, write_task
from kernwright.capture.capture import (
    Capture,
    CapturedArgument,
    CapturedCall,
    CapturedDict,
    CapturedOther,
    CapturedScalar,
    CapturedTensor,
    CaptureHeader,
)
from kernwright.capture.own_ops import settings_of
from kernwright.core.errors import BadFile
from kernwright.core.op import Op, define
from kernwright.core.registry import shipped_ops
from kernwright.tasks.task import load_task
from kernwright.tasks.workload import Workload

NAMES = {torch.bfloat16: "bfloat16", torch.float32: "float32", torch.int8: "int8"}


def value(of: Any) -> Any:
    """Return a tensor in the recorder's format."""
    if isinstance(of, Tensor):
        name = str(of.dtype).removeprefix("torch.")
        begins = of.storage_offset()
        return CapturedTensor(shape=tuple(of.shape), dtype=name, strides=of.stride(), offset=begins, device="cuda")
    if isinstance(of, dict):
        return CapturedDict(items={name: value(of[name]) for name in sorted(of)})
    if isinstance(of, bool | int | float | str | None):
        return CapturedScalar(type="none" if of is None else type(of).__name__, value=of)  # type: ignore[arg-type]
    return CapturedOther(type=type(of).__name__)


def called(returns: Any = None, raised: str | None = None, **arguments: Any) -> CapturedCall:
    named = tuple(CapturedArgument(name=name, value=value(of)) for name, of in arguments.items())
    return CapturedCall(call="m:f", arguments=named, returns=value(returns), raised=raised, count=2)


def draft(
    *calls: CapturedCall, op: str | Op = "norm_scale_shift", settings: dict[str, Any] | None = None, **mapping: str
) -> Draft:
    capture = Capture(header=CaptureHeader(program="x.py", targets=("m:f",)), calls=calls)
    chosen = shipped_ops()[op] if isinstance(op, str) else op
    request = DraftRequest(
        name="t",
        source=Path("c.jsonl"),
        call="m:f",
        op=chosen,
        mapping=mapping,
        models=("some",),
        settings=settings or {},
    )
    return draft_task(capture, request)


def meta(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def norm(batch: int, tokens: int, width: int, **more: Any) -> CapturedCall:
    x = meta(batch, tokens, width)
    return called(x, **{"x": x, "scale": meta(1, width), "shift": meta(1, width), "eps": 1e-6} | more)


def ids(made: Draft, kind: str) -> list[str]:
    return [row.id for row in made.rows if row.set == kind]


def find(made: Draft, identity: str) -> Workload:
    return next(row for row in made.rows if row.id == identity)


def test_each_signature_is_a_row_and_a_smoke_row_that_fits() -> None:
    made = draft(norm(1, 8424, 3072), norm(1, 195, 3072), norm(1, 195, 3072, timestep=3), norm(1, 16848, 3072))
    assert ids(made, "production") == [f"norm_scale_shift_s{n}_d3072_bf16" for n in (195, 8424, 16848)]
    row = find(made, "norm_scale_shift_s195_d3072_bf16")
    assert row.axes == {"S": 195, "D": 3072}
    assert row.inputs["x"].shape == (1, "S", "D") and row.inputs["scale"].shape == (1, "D")
    assert row.scalars == {"eps": 1e-6} and row.models == ("some",)
    assert row.bytes_min == 2 * (2 * 195 * 3072 + 2 * 3072)
    # 8424 and 16848 tokens both become 263: one row is enough.
    assert ids(made, "smoke") == [f"smoke_norm_scale_shift_s{n}_d3072_bf16" for n in (195, 263)]
    small = find(made, "smoke_norm_scale_shift_s263_d3072_bf16")
    assert small.sized_from == "norm_scale_shift_s8424_d3072_bf16"
    assert small.bytes_min == small.fewest_bytes() <= SMOKE_BYTES
    assert made.file.neighbours == ("S", "D")
    assert {dtype: t.atol for dtype, t in made.file.tolerance.items()} == {"bf16": 0.05}
    assert "8 calls of m:f in x.py" in made.file.origin
    assert "not used: timestep of m:f" in made.notes


def test_rows_that_sizes_do_not_tell_apart_have_ids_of_their_own_that_stay() -> None:
    one = draft(norm(1, 64, 128), norm(1, 64, 128, eps=1e-5))
    other = draft(norm(1, 64, 128, eps=1e-5), norm(1, 64, 128), norm(1, 64, 128, eps=1e-4))
    assert len(ids(one, "production")) == 2
    assert set(ids(one, "production")) < set(ids(other, "production"))


def test_frames_fix_their_tokens() -> None:
    """59 tokens would not divide into 6 frames, so 60 gets no axis name and no neighbours are tried."""
    frames = norm(1, 60, 8, scale=meta(1, 6, 1, 8), shift=meta(1, 6, 1, 8))
    made = draft(frames, norm(1, 50, 8))
    (row,) = (r for r in made.rows if r.set == "production" and "S" not in r.axes)
    assert row.inputs["x"].shape == (1, 60, "D")
    assert find(made, "norm_scale_shift_s50_d8_bf16").axes == {"S": 50, "D": 8}
    assert any("axis S has no name in 1 of 2 row(s)" in note for note in made.notes)


def test_rows_without_a_name_for_an_axis_are_counted_over_all_layouts() -> None:
    """An op that halves its input runs at even sizes only, which the note says."""

    @define(outputs=["y"], activations=["x"])
    def halved(x: Tensor, bias: Tensor | None = None) -> Tensor:
        a, b = x.chunk(2, -1)
        return a * b if bias is None else a * b + bias

    calls = [called(meta(n, 4), x=meta(n, 8), **bias) for n in (5, 6) for bias in ({}, {"bias": meta(4)})]
    made = draft(*calls, op=halved)
    (note,) = (note for note in made.notes if "axis D" in note)
    assert "4 of 4 row(s)" in note and "odd sizes" in note


def test_strides_are_kept_where_they_matter() -> None:
    wide = meta(1, 6, 64)
    made = draft(norm(1, 60, 64, scale=wide[:, 1:2], x=meta(1, 60, 192)[..., :64]))
    row = made.rows[0]
    assert row.inputs["x"].strides == (11520, 192, 1)
    assert row.inputs["scale"].strides is None and row.inputs["scale"].shape == (1, 1, "D")
    assert row.outputs["y"].strides is None


def test_a_view_begins_where_it_began_and_makes_a_row_of_its_own() -> None:
    """A view off an aligned address needs its own row: a kernel with vector loads may refuse it or choose another
    path."""
    x = meta(2 * 8 * 64 + 3)[3:].view(2, 8, 64)
    y = meta(2 * 8 * 64 + 3)[3:].view(2, 8, 64)
    scale = meta(65)[1:].expand(2, 8, 64)
    made = draft(norm(2, 8, 64), norm(2, 8, 64, x=x, scale=scale), called(y, x=x, scale=meta(1, 64), shift=meta(1, 64)))
    rows = [row for row in made.rows if row.set == "production"]
    begins = sorted(tuple(row.inputs[name].offset for name in ("x", "scale", "shift")) for row in rows)
    assert begins == [(0, 0, 0), (3, 0, 0), (3, 1, 0)]
    assert all(row.outputs["y"].offset == 0 for row in rows), "where an output lies, who makes it chooses"
    assert {row.inputs["x"].offset for row in made.rows if row.set == "smoke"} == {0, 3}


def test_an_expanded_tensor_is_read_once() -> None:
    made = draft(norm(2, 60, 64, scale=meta(1, 1, 64).expand(2, 60, 64)))
    row = made.rows[0]
    assert row.inputs["scale"].shape == (1, 1, "D")
    assert row.bytes_min == 2 * (2 * 2 * 60 * 64 + 2 * 64)
    assert any("scale was expanded over axis 0, 1" in note for note in made.notes)


def test_absent_optional_tensors_and_left_out_calls() -> None:
    made = draft(
        norm(1, 4, 8, weight=meta(8), bias=None),
        norm(1, 0, 8),
        called(None, raised="RuntimeError", x=meta(1, 9, 8)),
    )
    assert len(ids(made, "production")) == 1
    assert list(made.rows[0].inputs) == ["x", "scale", "shift", "weight"]
    assert {"left out: 2 call(s) that ended with RuntimeError", "left out: 2 call(s) with an empty tensor"} < set(
        made.notes
    )


def test_arguments_under_other_names_and_outputs_that_are_written_to() -> None:
    x = meta(1, 4, 8)
    call = called(None, hidden=x, out=meta(1, 4, 8), s=meta(1, 8), t=meta(1, 8), epsilon=1)
    made = draft(call, x="hidden", scale="s", shift="t", eps="epsilon", y="out")
    assert made.rows[0].scalars == {"eps": 1.0}
    assert list(made.rows[0].outputs) == ["y"]


def test_tensors_in_dicts() -> None:
    x = meta(1, 4, 8)
    call = called({"y": x, "steps": 3}, x=x, mods={"scale": meta(1, 8), "shift": meta(1, 8)}, eps=1e-6)
    made = draft(call, scale="mods[scale]", shift="mods[shift]")
    assert list(made.rows[0].inputs) == ["x", "scale", "shift"]
    assert list(draft(norm(1, 4, 8, eps=1e-6)).rows[0].outputs) == list(made.rows[0].outputs) == ["y"]
    with pytest.raises(
        BadFile, match=r"the call has: x, mods\[scale\], mods\[shift\], eps, return\[steps\], return\[y\]"
    ):
        draft(call)


def test_a_dict_s_results_are_told_apart_by_their_names() -> None:
    """The order of a dict means nothing: here `residual_out` comes before `y`."""
    x, wide = meta(1, 4, 8), meta(1, 4, 8, dtype=torch.float32)
    arguments = {"x": x, "residual": wide, "norm_type": "rms", "eps": 1e-6}
    made = draft(called({"y": x, "residual_out": wide}, **arguments), op="add_norm")
    assert {name: own.dtype for name, own in made.rows[0].outputs.items()} == {"y": "bf16", "residual_out": "fp32"}
    unclear = called({"normed": x, "total": wide}, **arguments)
    with pytest.raises(BadFile, match=r"say where each is found, as in --map y=return"):
        draft(unclear, op="add_norm")
    assert draft(unclear, op="add_norm", y="return[normed]", residual_out="return[total]").rows


def added(residual: Tensor | None, in_fp32: bool, wide: bool) -> CapturedCall:
    x = meta(1, 4, 8)
    both = {"y": x, "residual_out": meta(1, 4, 8, dtype=torch.float32 if wide else torch.bfloat16)}
    return called(both, x=x, residual=residual, weight=meta(8), norm_type="rms", residual_in_fp32=in_fp32, eps=1e-6)


def test_what_only_the_public_call_can_be_told_costs_no_other_row() -> None:
    """residual_in_fp32 replaces a missing residual by zeros, which no row can express."""
    settings = settings_of(shipped_ops()["add_norm"])
    assert settings == {"residual_in_fp32": False}
    told = "left out: 2 call(s) with residual_in_fp32=True, of which add_norm's rows have none"
    plain, wide = added(meta(1, 4, 8), False, wide=False), added(meta(1, 4, 8, dtype=torch.float32), True, wide=True)
    made = draft(added(None, True, wide=True), plain, wide, op="add_norm", settings=settings)
    assert len(ids(made, "production")) == 2, "one that it changes nothing about is a row"
    assert [note for note in made.notes if "residual_in_fp32" in note] == [told]
    with pytest.raises(BadFile, match="has no call that a row could be made from; left out: 2"):
        draft(added(None, True, wide=True), op="add_norm", settings=settings)
    with pytest.raises(BadFile, match="wieght: was not captured"):
        draft(wide, op="add_norm", settings=settings, weight="wieght")
    with pytest.raises(BadFile, match="is not what was captured"):
        draft(added(None, False, wide=True), op="add_norm", settings=settings)


def test_ops_that_work_in_place() -> None:
    @define(outputs=[], activations=["state"], inplace=["state"])
    def bump(state: Tensor, by: Tensor) -> None:
        """state += by"""
        state += by

    made = draft(called(None, state=meta(4, 8, dtype=torch.float32), by=meta(8, dtype=torch.float32)), op=bump)
    assert made.rows[0].bytes_min == 4 * (2 * 32 + 8)
    assert list(made.file.tolerance) == ["fp32"]


def test_an_axis_whose_size_is_part_of_another_has_no_name() -> None:
    @define(outputs=["y"], activations=["x"])
    def flat(x: Tensor) -> Tensor:
        """Return all tokens of all batches as one list."""
        return x.reshape(-1, x.shape[-1]) * 2

    made = draft(called(meta(12, 8), x=meta(2, 6, 8)), op=flat)
    assert made.rows[0].inputs["x"].shape == (2, 6, "D")
    assert made.rows[0].outputs["y"].shape == (12, "D")
    assert made.file.neighbours == ("D",)


def test_sizes_of_an_op_that_reads_values_are_not_tried() -> None:
    @define(outputs=["y"], activations=["x"])
    def halved(x: Tensor) -> Tensor:
        """Return x divided by its largest value."""
        return x / x.max().item()

    made = draft(called(meta(6, 8), x=meta(6, 8)), op=halved)
    assert made.rows[0].axes == {"S": 6, "D": 8}


X = meta(1, 4, 8)
GOOD: dict[str, Any] = {"x": X, "scale": meta(1, 8), "shift": meta(1, 8)}


@pytest.mark.parametrize(
    ("call", "mapping", "said", "remedy"),
    [
        (called(X, **GOOD | {"x": 3}), {}, "c.jsonl:2: x: is not a tensor", "--map x=ARGUMENT"),
        (called(X, hidden=X), {}, "c.jsonl:2: x: was not captured", "the call has: hidden, return"),
        (called(X, **GOOD), {"x": "hidden"}, "c.jsonl:2: hidden: was not captured", "the call has: x, scale, shift"),
        (called(X, **GOOD, eps="small"), {}, "c.jsonl:2: eps: is 'small'", "takes a float as eps"),
        (called(X, **GOOD, eps=None), {}, "c.jsonl:2: eps: is neither a number", "--map eps=ARGUMENT"),
        (called(X, **GOOD | {"x": X.to(torch.int8)}), {}, "c.jsonl:2: x: has dtype int8", "rows can have: bfloat16"),
        (called(None, **GOOD), {}, "c.jsonl:2: returns: holds 0 tensor(s)", "--map y=return[0]"),
        (called(X, **GOOD), {"y": "out"}, "c.jsonl:2: out: was not captured", "the call has"),
        (called(meta(1, 4), **GOOD), {}, "returns: y was bf16[1, 4]; norm_scale_shift gives bf16[1, 4, 8]", "--op"),
        (called(X, **GOOD | {"scale": meta(7)}), {}, "arguments: norm_scale_shift fails with these arguments", "--map"),
        (called(None, raised="OSError", **GOOD), {}, "c.jsonl: m:f: has no call that a row could", "it holds: m:f"),
    ],
)
def test_a_call_that_does_not_fit_is_named_with_a_remedy(
    call: CapturedCall, mapping: dict[str, str], said: str, remedy: str
) -> None:
    with pytest.raises(BadFile) as caught:
        draft(call, **mapping)
    assert said in caught.value.cause
    assert remedy in caught.value.remedy


def test_the_folder_loads_and_a_failure_leaves_nothing(tmp_path: Path, task_texts: dict[str, str]) -> None:
    made = draft(norm(1, 195, 3072), norm(2, 64, 128, weight=meta(128)))
    write_task(made, tmp_path / "t", None, force=False)
    loaded = load_task(tmp_path / "t")
    assert loaded.rows == made.rows
    assert loaded.file == made.file
    (tmp_path / "t" / "baselines.py").write_text("# kept")
    write_task(draft(norm(1, 5, 8)), tmp_path / "t", None, force=True)
    assert len(load_task(tmp_path / "t").rows) == 2
    assert (tmp_path / "t" / "baselines.py").exists()
    broken = tmp_path / "ops.py"
    broken.write_text("not python")
    named = Draft(made.file.model_copy(update={"definitions": "ops.py"}), made.rows, ())
    with pytest.raises(BadFile):
        write_task(named, tmp_path / "u", broken, force=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ops.py", "t"]


def test_toml_strings_may_contain_any_character(tmp_path: Path) -> None:
    made = draft(norm(1, 5, 8))
    file = made.file.model_copy(update={"title": 'a "quoted" \\ line\nand é\t'})
    write_task(Draft(file, made.rows, ()), tmp_path / "t", None, force=False)
    assert load_task(tmp_path / "t").file.title == file.title
    assert task_toml(file).startswith('name = "t"\n')
