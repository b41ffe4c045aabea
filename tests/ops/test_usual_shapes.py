"""Shapes that are derived from a first tensor make a valid call of every op."""

from __future__ import annotations

import pytest
import torch

from kernwright.core.op import Op
from kernwright.core.registry import shipped_ops
from kernwright.ops.catalog import dispatcher
from kernwright.ops.usual_shapes import UsualShapes, usual_shape
from kernwright.runtime.call import Call

DTYPES = {None: torch.bfloat16, "fp32": torch.float32, "i32": torch.int32, "i64": torch.int64}
VIDEO = (2, 32, 3, 4, 6)
FIRST = {"rotary": (2, 6, 4, 64), "group_norm_silu": VIDEO, "wan_rmsnorm_silu": VIDEO, "causal_cat_pad": VIDEO}


@pytest.mark.parametrize("op", shipped_ops().values(), ids=lambda op: op.name)
def test_every_op_accepts_its_usual_shapes(op: Op) -> None:
    first = FIRST.get(op.name, (2, 6, 64))
    given = {op.activations[0]: torch.empty(first, dtype=torch.bfloat16, device="meta")}
    for parameter in op.tensor_parameters:
        if not parameter.optional and parameter.name not in given:
            sizes, dtype = usual_shape(op, parameter.name, first)
            given[parameter.name] = torch.empty(sizes, dtype=DTYPES[dtype], device="meta")
    dispatcher(op.name).check(Call.of(op, (), given))
    op.reference(**given)


def test_axes_that_the_first_tensor_lacks_have_size_one() -> None:
    shapes = UsualShapes(others={"own": "B S 4*D", "half": "D/2 :fp32"})
    assert shapes.of("own", (6, 64)) == ([1, 6, 256], None)
    assert shapes.of("own", (7, 2, 6, 64)) == ([2, 6, 256], None)
    assert shapes.of("half", (64,)) == ([32], "fp32")
    assert shapes.of("other", (64,)) is None
    assert UsualShapes("B C ...", {"own": "C B"}).of("own", (2, 32, 3)) == ([32, 2], None)
