"""Ops without kernels name a wrong argument as ops with kernels do, and accept every frozen row."""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

import kernwright
from kernwright import ops
from kernwright.ops.catalog import dispatcher, fused_ops
from kernwright.runtime.call import BadArgument, Call
from kernwright.tasks.catalog import find_task, list_tasks
from kernwright.tasks.tensor import TORCH_NAMES
from kernwright.tasks.workload import Workload

WITHOUT = sorted(name for name in ops.FAMILIES if dispatcher(name).backends == ["torch"])
VIDEO, CHANNELS = torch.ones(1, 8, 3, 2, 2), torch.ones(8)
HEADS, TOKENS = torch.ones(2, 4, 3, 8), torch.ones(2, 4, 24)
ANGLES, SPLIT = torch.ones(4, 4), torch.ones(2, 3, 4, 4)
QK = torch.ones(4, 3, 8)


def qknorm(**changed: Any) -> Any:
    weights = {"q_weight": torch.ones(8), "k_weight": torch.ones(8)}
    given = {"q": QK.clone(), "k": QK.clone(), "cos_sin_cache": torch.ones(9, 8), "positions": torch.arange(4)}
    return ops.qknorm_rope(**{**given, **weights, **changed})


def split_qk(**changed: Any) -> Any:
    weights = {"q_norm_weight": torch.ones(24), "k_norm_weight": torch.ones(24)}
    angles = dict.fromkeys(("q_cos", "q_sin", "k_cos", "k_sin"), SPLIT)
    return ops.ltx2_qknorm_split_rope(**{"q": TOKENS, "k": TOKENS, **weights, **angles, **changed})


@pytest.mark.parametrize(
    ("argument", "call"),
    [
        ("a", lambda: ops.concat_sequence([1.0], HEADS)),
        ("a", lambda: ops.concat_sequence(CHANNELS, CHANNELS)),
        ("b", lambda: ops.concat_sequence(HEADS, HEADS[..., :4])),
        ("a", lambda: ops.copy_contiguous(HEADS.to_sparse())),
        ("out", lambda: ops.copy_contiguous(HEADS, out=torch.empty(3))),
        ("x", lambda: ops.causal_cat_pad(HEADS)),
        ("pad_w", lambda: ops.causal_cat_pad(VIDEO, pad_w="1")),
        ("pad_t", lambda: ops.causal_cat_pad(VIDEO, pad_t=-1)),
        ("cache", lambda: ops.causal_cat_pad(VIDEO, VIDEO[:, :4])),
        ("cache", lambda: ops.causal_cat_pad(VIDEO, VIDEO, pad_t=2)),
        ("x", lambda: ops.group_norm_silu(CHANNELS, CHANNELS, CHANNELS)),
        ("weight", lambda: ops.group_norm_silu(VIDEO, torch.ones(7), CHANNELS, num_groups=4)),
        ("num_groups", lambda: ops.group_norm_silu(VIDEO, CHANNELS, CHANNELS, num_groups=3)),
        ("num_groups", lambda: ops.group_norm_silu(VIDEO, CHANNELS, CHANNELS, num_groups=4.0)),
        ("gamma", lambda: ops.wan_rmsnorm_silu(VIDEO, torch.ones(7, 1, 1, 1))),
        ("bias", lambda: ops.wan_rmsnorm_silu(VIDEO, torch.ones(8, 1, 1, 1), torch.ones(2, 8, 1, 1, 1))),
        ("x", lambda: ops.wan_rmsnorm_silu(VIDEO.int(), torch.ones(8, 1, 1, 1))),
        ("x", lambda: ops.rotary(HEADS[..., :7], ANGLES, ANGLES)),
        ("cos", lambda: ops.rotary(HEADS, torch.ones(5, 4), ANGLES)),
        ("sin", lambda: ops.rotary(HEADS, ANGLES, SPLIT)),
        ("sin", lambda: ops.rotary(HEADS, ANGLES, ANGLES.to("meta"))),
        ("cos", lambda: ops.ltx2_split_rotary(TOKENS, SPLIT[..., :3], SPLIT)),
        ("sin", lambda: ops.ltx2_split_rotary(TOKENS, SPLIT, SPLIT[..., :3])),
        ("positions", lambda: qknorm(positions=torch.ones(4))),
        ("positions", lambda: qknorm(positions=torch.arange(5))),
        ("cos_sin_cache", lambda: qknorm(cos_sin_cache=torch.ones(9, 10))),
        ("k_weight", lambda: qknorm(k_weight=torch.ones(4))),
        ("is_neox", lambda: qknorm(is_neox="yes")),
        ("q", lambda: qknorm(q=torch.ones(1, 3, 8).expand(4, 3, 8))),
        ("k_cos", lambda: split_qk(k_cos=SPLIT[:, :2])),
        ("q_norm_weight", lambda: split_qk(q_norm_weight=torch.ones(8))),
    ],
)
def test_a_wrong_argument_is_named(argument: str, call: Any) -> None:
    with pytest.raises(BadArgument) as wrong:
        call()
    assert wrong.value.name == argument


@cache
def all_rows() -> list[Workload]:
    return [row for task in map(find_task, list_tasks()) for row in task.rows]


@cache
def frozen_rows(op: str) -> list[Call]:
    calls = []
    for row in all_rows():
        if row.op == op:
            tensors = {
                name: torch.empty_strided(
                    own.shape, own.strides, dtype=getattr(torch, TORCH_NAMES[own.dtype]), device="meta"
                )
                for name, own in row.concrete_inputs().items()
            }
            calls.append(Call.of(dispatcher(op).op, (), {**tensors, **row.scalars}))
    return calls


@pytest.mark.parametrize("op", WITHOUT)
def test_every_frozen_row_is_taken(op: str) -> None:
    assert frozen_rows(op), "no task has a row of it"
    for call in frozen_rows(op):
        dispatcher(op).check(call)


@pytest.mark.parametrize("op", WITHOUT)
def test_it_has_the_keywords_and_errors_of_every_op(op: str) -> None:
    own = getattr(ops, op)
    parameters = inspect.signature(own).parameters
    assert [name for name in ("backend", "contract", "out") if name not in parameters] == (
        [] if dispatcher(op).op.outputs else ["out"]
    )
    assert op in fused_ops(ops.FAMILIES[op]), "it has a check"
    with pytest.raises(TypeError, match=f"{op}.. got an unexpected keyword argument 'colour'"):
        own(colour=1)
    call = frozen_rows(op)[0]
    with pytest.raises(kernwright.KernwrightError, match="no backend 'vulkan'"):
        own(**call.arguments, backend="vulkan")
    with pytest.raises(kernwright.CannotRun, match="it has no triton implementation"):
        own(**call.arguments, backend="triton")


def test_numbers_of_numpy_are_taken() -> None:
    assert ops.causal_cat_pad(VIDEO, pad_t=np.int64(1)).shape[2] == 4
    y = ops.group_norm_silu(VIDEO, CHANNELS, CHANNELS, num_groups=np.int32(4), eps=np.float32(1e-5))
    assert torch.equal(y, ops.group_norm_silu(VIDEO, CHANNELS, CHANNELS, num_groups=4, eps=float(np.float32(1e-5))))
    qknorm(is_neox=np.True_)
