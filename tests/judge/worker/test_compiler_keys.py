"""A zygote asks compilers for their keys without importing them."""

from __future__ import annotations

import sys
import types

import pytest

from kernwright.judge.worker.compiler_keys import KEYS, compute_compiler_keys


def test_only_those_that_are_here_are_asked_and_each_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    for needed, module, name in KEYS:
        monkeypatch.delitem(sys.modules, needed, raising=False)
        stand_in = types.ModuleType(module)
        setattr(stand_in, name, lambda name=name: asked.append(name))
        monkeypatch.setitem(sys.modules, module, stand_in)
        if needed == module:
            monkeypatch.delitem(sys.modules, module)
    assert compute_compiler_keys() == []
    monkeypatch.setitem(sys.modules, "triton", types.ModuleType("triton"))
    assert compute_compiler_keys() == asked == ["triton_key"]
    assert "torch._inductor.codecache" not in sys.modules


@pytest.mark.gpu
def test_the_compilers_of_this_machine_have_keys() -> None:
    import torch._inductor.compile_fx  # noqa: F401
    import triton.language  # noqa: F401

    assert compute_compiler_keys() == ["triton_key", "torch_key"]
