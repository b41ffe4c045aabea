"""The C++ code of docs/candidates.md compiles as printed."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

PAGE = Path(__file__).parents[2] / "docs" / "candidates.md"
LOOPS = """
extern "C" void widen(const uint16_t* in, float* out, int n) { for (int i = 0; i < n; ++i) out[i] = from_bf16(in[i]); }
extern "C" void narrow(const float* in, uint16_t* out, int n) { for (int i = 0; i < n; ++i) out[i] = to_bf16(in[i]); }
"""


@pytest.mark.skipif(shutil.which("c++") is None, reason="needs a C++ compiler")
def test_bf16_is_converted_as_torch_does(tmp_path: Path) -> None:
    block = PAGE.read_text().partition("```cpp\n#include <cstdint>\n")[2].partition("```")[0]
    (tmp_path / "page.cc").write_text("#include <cstdint>\n" + block + LOOPS)
    library = tmp_path / "page.so"
    subprocess.run(["c++", "-O1", "-shared", "-fPIC", "-o", library, tmp_path / "page.cc"], check=True)
    page = ctypes.CDLL(str(library))

    def converted(function: str, values: torch.Tensor, result: torch.dtype) -> torch.Tensor:
        out = torch.empty(len(values), dtype=result)
        getattr(page, function)(ctypes.c_void_p(values.data_ptr()), ctypes.c_void_p(out.data_ptr()), len(values))
        return out

    every = torch.arange(2**16, dtype=torch.int32).to(torch.uint16).view(torch.bfloat16)
    wide = converted("widen", every, torch.float32)
    assert torch.equal(wide.nan_to_num(1.5), every.float().nan_to_num(1.5))
    between = torch.randint(-(2**31), 2**31, (2**18,), dtype=torch.int32).view(torch.float32)
    ties = (every.view(torch.int16).to(torch.int32) * 2**16 + 2**15).view(torch.float32)
    values = torch.cat([wide, between, ties])
    narrow = converted("narrow", values, torch.bfloat16)
    assert torch.equal(narrow.isnan(), values.isnan())
    assert torch.equal(narrow[~values.isnan()], values[~values.isnan()].bfloat16())
