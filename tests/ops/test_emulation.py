"""The emulation of CUDA kernels on a CPU: it finds the errors that it claims to find, and is intact afterwards."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from emulation import built

from kernwright.runtime.target import compiler

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler")


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return built("meetings_emulation.cc", (), {"only": {}}, tmp_path_factory.mktemp("emulated"))["only"]


def hold_to_sum(emulated: Any, blocks: int) -> None:
    values = torch.arange(32.0)
    emulated.run(values, blocks, False, False)
    wanted = 496.0 * 32 ** (blocks - 1)  # a block adds to the sum of the previous block
    assert torch.equal(values, torch.full((32,), wanted))


@pytest.mark.parametrize("blocks", [1, 2, 3])
def test_threads_meet_at_shuffles_and_barriers(emulated: Any, blocks: int) -> None:
    hold_to_sum(emulated, blocks)


@pytest.mark.parametrize(
    ("flags", "found"), [((True, False), "meet at different places"), ((False, True), "not aligned")]
)
def test_an_error_stops_the_emulation_and_leaves_nothing_behind(
    emulated: Any, flags: tuple[bool, bool], found: str
) -> None:
    for _ in range(2):
        with pytest.raises(RuntimeError, match=found):
            emulated.run(torch.arange(32.0), 1, *flags)
        hold_to_sum(emulated, 2)
