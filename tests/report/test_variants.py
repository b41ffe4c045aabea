"""Rows over which a mean may be taken: all of them move the same number of bytes per element."""

from __future__ import annotations

import math

import pytest

from kernwright.report.variants import variants_of
from kernwright.tasks.catalog import find_task
from kernwright.tasks.workload import Workload


def production(task: str) -> tuple[Workload, ...]:
    return find_task(task).select("production")


def bytes_per_element(row: Workload) -> int:
    """Return the bytes per element, without weights and broadcast tensors, which are small in a large row."""
    (first, *_) = (row.concrete_outputs() or row.concrete_inputs()).values()
    return round(row.bytes_min / math.prod(first.shape))


@pytest.mark.parametrize("task", ["fuse_scale_shift", "norm_scale_shift", "residual_gate_add", "add_norm"])
def test_large_rows_of_a_variant_move_equal_bytes_per_element(task: str) -> None:
    rows = production(task)
    variants = variants_of(rows)
    assert sorted(row.id for own in variants.values() for row in own) == sorted(row.id for row in rows)
    for name, own in variants.items():
        assert len({bytes_per_element(row) for row in own if row.bytes_min > 1e6}) <= 1, name
        assert len({row.op for row in own}) == 1


def test_two_forms_of_one_call_are_two_variants() -> None:
    words = [{row.id.partition("_")[0] for row in own} for own in variants_of(production("fuse_scale_shift")).values()]
    assert {"gate"} in words and {"rowmod"} in words
    assert all(len(own) == 1 for own in words)


def test_a_single_token_makes_no_variant() -> None:
    """For a single token the weight is as large as x."""
    (own,) = (
        own for own in variants_of(production("add_norm")).values() if any(row.id.endswith("8b_s1") for row in own)
    )
    assert len(own) > 1


def test_ops_are_separate_and_a_single_variant_needs_no_name() -> None:
    assert list(variants_of(production("norm_infer"))) == ["layer_norm", "rms_norm"]
    assert list(variants_of(production("group_norm_silu"))) == [""]
    assert variants_of(()) == {}
