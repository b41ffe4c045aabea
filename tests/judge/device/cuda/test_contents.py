"""Contents of a half quad, on a CPU: the arithmetic is the same on every device."""

from __future__ import annotations

import pytest
import torch

from kernwright.judge.device.cuda.contents import CudaContentPool
from kernwright.judge.numerics.contracts import same_bits
from kernwright.tasks.catalog import find_task
from kernwright.tasks.workload import Workload

CALLS = 3
EXACT = ("fuse_scale_shift", "residual_gate_add", "rotary_embedding", "attention_concat_copy", "causal_conv3d_cat_pad")


def smoke_rows(name: str) -> list[Workload]:
    return [row for row in find_task(name).select("smoke") if find_task(name).op_of(row).contract == "exact"]


@pytest.mark.parametrize("name", EXACT)
def test_an_exact_expectation_has_the_bits_of_each_call(name: str) -> None:
    rows = smoke_rows(name)
    assert rows
    for row in rows[:4]:
        op = find_task(name).op_of(row)
        contents = CudaContentPool(torch.Generator().manual_seed(3)).contents(op, row, CALLS, {})
        for call in range(CALLS):
            own = {name: tensor[call] for name, tensor in contents.inputs.items()}
            for output, wanted in op.results(own, op.scalar_defaults | row.scalars).items():
                assert contents.expected[output].dtype == wanted.dtype
                assert same_bits(contents.expected[output][call], wanted), row.id


def test_a_number_that_promotes_only_among_many_calls_is_seen() -> None:
    """One float32 number times bfloat16 tokens gives bfloat16. Three such numbers in one tensor, one per call, would
    give float32."""
    task = find_task("fuse_scale_shift")
    tokens = {"shape": [1, 5, 16], "dtype": "bf16"}
    number = {"shape": [], "dtype": "fp32"}
    row = Workload.model_validate(
        {
            "id": "numbers", "op": "scale_shift", "set": "smoke", "bytes_min": 320, "outputs": {"y": tokens},
            "inputs": {"x": tokens, "scale": number, "shift": number},
        }
    )  # fmt: skip
    op = task.op_of(row)
    pool = CudaContentPool(torch.Generator().manual_seed(3))
    contents = pool.contents(op, row, CALLS, {})
    assert pool._batches_exactly is False
    for call in range(CALLS):
        own = {name: tensor[call] for name, tensor in contents.inputs.items()}
        assert same_bits(contents.expected["y"][call], op.results(own, op.scalar_defaults)["y"])
