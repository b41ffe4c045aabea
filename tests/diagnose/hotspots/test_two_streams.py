"""Chains of models with two token streams: a norm of one stream does not continue a sum of the other one."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_trace import MadeTrace

from kernwright.diagnose.hotspots.ranking import diagnose
from kernwright.diagnose.trace.trace import read_trace

WIDTH = 3072


def chains_of(folder: Path, tokens: int, cast: bool, normed: list[int]) -> set[str]:
    """Return the chains of a gated residual of some tokens, then a modulated norm of a tensor of another shape."""
    x, row, weight = [1, tokens, WIDTH], [1, 1, WIDTH], [WIDTH]
    norm = [("to", [normed]), ("to", [weight])] if cast else []
    norm += [
        ("layer_norm", [normed, weight, weight]),
        ("add", [row, []]),
        ("mul", [normed, row]),
        ("add", [normed, row]),
    ]
    trace = MadeTrace()
    for place, (op, dims) in enumerate([("mul", [x, row]), ("add", [x, x]), *norm]):
        at, types = 100.0 * place, ["c10::BFloat16"] * len(dims)
        trace.range("cpu_op", f"aten::{op}", at, at + 20, **{"Input Dims": dims, "Input type": types})
        trace.kernel(f"void at::native::elementwise_kernel<{op}>", at + 15, 40.0, launched=at + 5, grid=[999, 1, 1])
    return {h.name for h in diagnose(read_trace(trace.write(folder / "trace.json"))).hotspots if h.kind == "chain"}


@pytest.mark.parametrize("cast", [False, True])
def test_a_sum_and_a_norm_are_one_chain_if_they_have_one_size(cast: bool, tmp_path: Path) -> None:
    other = chains_of(tmp_path, 47, cast, [1, 4096, WIDTH])
    assert other == {"residual_gate", "norm_modulation"}
    if not cast:  # a cast of the weights lies between the sum and the norm in no known model
        assert chains_of(tmp_path, 4096, cast, [1, 4096, WIDTH]) == {"residual_norm_modulation"}
        assert chains_of(tmp_path, 4096, cast, [4096, WIDTH]) == {"residual_norm_modulation"}
