"""Rows that a mean may be taken over: all of them move as many bytes for an element."""

from __future__ import annotations

import math

import pytest

from kernwright.report.variants import variants_of
from kernwright.tasks.catalog import find_task
from kernwright.tasks.workload import Workload


def production(task: str) -> tuple[Workload, ...]:
    return find_task(task).select("production")


def bytes_per_element(row: Workload) -> int:
    """Without weights and what is broadcast, of which there is little in a large row."""
    (first, *_) = (row.concrete_outputs() or row.concrete_inputs()).values()
    return round(row.bytes_min / math.prod(first.shape))


@pytest.mark.parametrize("task", ["fuse_scale_shift", "norm_scale_shift", "residual_gate_add", "add_norm"])
def test_large_rows_of_a_variant_move_as_many_bytes_for_an_element(task: str) -> None:
    rows = production(task)
    variants = variants_of(rows)
    assert sorted(row.id for own in variants.values() for row in own) == sorted(row.id for row in rows)
    for name, own in variants.items():
        assert len({bytes_per_element(row) for row in own if row.bytes_min > 1e6}) <= 1, name
        assert len({row.op for row in own}) == 1


def test_two_forms_of_one_call_are_apart() -> None:
    words = [{row.id.partition("_")[0] for row in own} for own in variants_of(production("fuse_scale_shift")).values()]
    assert {"gate"} in words and {"rowmod"} in words
    assert all(len(own) == 1 for own in words)


def test_a_single_token_makes_no_variant() -> None:
    """Its weight is as large as x is."""
    (own,) = (
        own for own in variants_of(production("add_norm")).values() if any(row.id.endswith("8b_s1") for row in own)
    )
    assert len(own) > 1


def test_ops_are_apart_and_an_only_variant_needs_no_name() -> None:
    assert list(variants_of(production("norm_infer"))) == ["layer_norm", "rms_norm"]
    assert list(variants_of(production("group_norm_silu"))) == [""]
    assert variants_of(()) == {}
