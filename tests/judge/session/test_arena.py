"""Shared memory with canaries."""

from __future__ import annotations

import errno
import gc
import mmap
import os
from collections.abc import Iterator

import pytest
import torch

from kernwright.core.errors import EnvironmentProblem
from kernwright.judge.protocol.layout import lay_out
from kernwright.judge.session.arena import CANARY, POISON, Arena
from kernwright.tasks.tensor import ConcreteTensor

X = ConcreteTensor(shape=(3, 5), dtype="fp32", strides=(5, 1))
Y = ConcreteTensor(shape=(3, 5), dtype="bf16", strides=(8, 1))
Z = ConcreteTensor(shape=(3, 5), dtype="bf16", strides=(5, 1), offset=3)


@pytest.fixture
def arena() -> Iterator[Arena]:
    arena = Arena.create(lay_out({"x": X, "y": Y, "z": Z}, slots=2))
    yield arena
    arena.close()


def test_tensors_are_views_of_the_shared_bytes(arena: Arena) -> None:
    place = arena.layout.place(1, "y")
    tensor = arena.tensor(1, "y")
    assert (tuple(tensor.shape), tensor.stride(), tensor.dtype) == ((3, 5), (8, 1), torch.bfloat16)
    tensor.fill_(2.0)
    with mmap.mmap(arena.descriptor, arena.layout.size) as other:
        seen = torch.frombuffer(bytearray(other[place.offset : place.offset + 10]), dtype=torch.bfloat16)
        assert seen.tolist() == [2.0] * 5


def test_all_slots_of_a_tensor_are_one_view(arena: Arena) -> None:
    for name in arena.layout.plan:
        for slot in range(2):
            arena.tensor(slot, name).fill_(slot + 1)
        stacked = arena.stacked(name)
        assert tuple(stacked.shape) == (2, 3, 5)
        assert [stacked[slot].unique().tolist() for slot in range(2)] == [[1.0], [2.0]]
        assert stacked[1].data_ptr() == arena.tensor(1, name).data_ptr()


def test_a_tensor_with_an_offset_begins_behind_so_many_elements(arena: Arena) -> None:
    for slot in range(2):
        assert arena.tensor(slot, "z").data_ptr() % 256 == 3 * 2
        assert arena.tensor(slot, "x").data_ptr() % 256 == 0
        start = arena.layout.place(slot, "z").offset
        # Right before the tensor, at its base, and right behind it.
        for byte in (start - 1, start - 6, start + Z.span_bytes):
            arena.bytes[byte] = 0
            assert arena.broken_guard() == byte
            arena.bytes[byte] = CANARY


def test_guards_are_whole_until_a_byte_of_them_changes(arena: Arena) -> None:
    for slot in range(2):
        for name in arena.layout.plan:
            arena.tensor(slot, name).fill_(1)
            arena.poison(slot, name)
    assert arena.broken_guard() is None
    for start, end in arena.layout.guards:
        for byte in (start, end - 1):
            arena.bytes[byte] = 0
            assert arena.broken_guard() == byte
            arena.bytes[byte] = CANARY
    assert arena.broken_guard() is None


def test_poison_is_seen_until_one_byte_of_it_is_written(arena: Arena) -> None:
    place = arena.layout.place(0, "y")
    assert not arena.is_poisoned(0, "y")
    arena.poison(0, "y")
    assert arena.is_poisoned(0, "y")
    assert not arena.is_poisoned(1, "y")
    assert arena.broken_guard() is None
    arena.bytes[place.offset + place.tensor.span_bytes - 1] = POISON ^ 1
    assert not arena.is_poisoned(0, "y")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_poison_is_no_plausible_output(dtype: torch.dtype) -> None:
    value = torch.full((8,), POISON, dtype=torch.uint8).view(dtype)
    assert not bool((value.double().abs() < 1e4).any())


def test_missing_memory_is_reported_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, start: int, size: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    gc.collect()  # memory of earlier tests must not be freed during this one
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(EnvironmentProblem, match="--rows"):
        Arena.create(lay_out({"x": X}, slots=1))
    assert len(os.listdir("/proc/self/fd")) == before, "the descriptor leaked"  # noqa: PTH208
