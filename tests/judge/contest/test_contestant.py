"""A baseline that promises more than the eager chain is identified by the kernels that it launches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernwright.baselines.lookup import find_baseline
from kernwright.baselines.shipped import Shipped
from kernwright.judge.contest.contestant import Contestant
from kernwright.tasks.task import load_task


@pytest.mark.parametrize(
    ("name", "kernels", "said"),
    [
        ("compile", ["triton_per_fused_add_mul_0"], None),
        ("compile", ["Memset", "triton_poi_fused_0"], None),
        ("compile", ["void at::native::elementwise_kernel<128, 2>"], "ran void at::native::elementwise_kernel<128, 2>"),
        ("compile", [], "ran nothing"),
        ("compile", None, None),
        ("eager", ["void at::native::elementwise_kernel<128, 2>"], None),
    ],
)
def test_a_compiled_side_that_fell_back_is_detected(
    tiny_folder: Path, name: str, kernels: list[str] | None, said: str | None
) -> None:
    contestant: Any = Contestant.of_baseline(find_baseline(load_task(tiny_folder), name))
    found = contestant.ran_else("axpy", kernels)
    assert found == (f"{said} instead of a kernel that torch.compile made" if said else None)


def test_the_digest_of_shipped_ops_covers_only_ops_with_rows() -> None:
    """A judgement of these rows alone records this digest, so that an interrupted sweep continues from its finished
    rows."""
    both = Shipped(("rms_norm", "scale_shift"))
    contestant = Contestant.of_contender(both)
    assert contestant.digest_for({"rms_norm", "scale_shift"}) == both.digest
    assert contestant.digest_for({"rms_norm"}) == Shipped(("rms_norm",)).digest != both.digest
