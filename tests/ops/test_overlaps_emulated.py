"""Detection of overlapping tensors in C++: it agrees with Python, and refuses the same calls."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from emulation import built
from overlap_cases import cut, drawn

from kernwright.ops._shared.implementations import CPU_HEADERS
from kernwright.runtime.overlaps import overlaps_itself, share_bytes
from kernwright.runtime.target import compiler

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler")


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return built("overlaps_emulation.cc", CPU_HEADERS, {"only": {}}, tmp_path_factory.mktemp("emulated"))["only"]


def test_the_result_is_that_of_python(emulated: Any) -> None:
    found = set()
    for one, other in [*drawn(3000), *((one, other) for _, one, other, _ in cut())]:
        answers = emulated.overlaps_itself(one), emulated.share_memory(one, other)
        assert answers == (overlaps_itself(one), share_bytes(one, other)), (one.stride(), other.stride())
        found.add(answers)
    assert len(found) == 4


def test_an_empty_tensor_overlaps_nothing(emulated: Any) -> None:
    assert not emulated.overlaps_itself(torch.empty(0, 1).expand(0, 3))
    assert not emulated.overlaps_itself(torch.empty(1, 0).expand(6, 0))
    assert not emulated.share_memory(torch.empty(3, 0), torch.empty(3, 0))
