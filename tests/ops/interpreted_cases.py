"""Run with TRITON_INTERPRET=1, which holds for a whole process: every case's outcome, as JSON.

python interpreted_cases.py [--family=modulation] CASE ...
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any


def round_to_bfloat16() -> None:
    """As a GPU does, to nearest and ties to even: the interpreter cuts off, and loses what is subnormal."""
    import numpy as np
    import triton.language as tl
    from triton.runtime import interpreter

    others = interpreter._convert_float

    def convert(values: Any, source: Any, target: Any, mode: Any) -> Any:
        if (source, target) == (tl.float32, tl.bfloat16):
            bits = np.ascontiguousarray(values).view(np.uint32)
            rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
            return np.where(np.isnan(bits.view(np.float32)), 0x7FFF, rounded).astype(np.uint16)
        if (source, target) == (tl.bfloat16, tl.float32):
            return np.ascontiguousarray(values).view(np.uint16).astype(np.uint32) << 16
        return others(values, source, target, mode)

    interpreter._convert_float = convert


def outcome(cases: Any, kernels: Any, name: str) -> str | None:
    case = cases.CASES[name]
    try:
        cases.verify(case, getattr(kernels, case.op))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def main(names: list[str]) -> None:
    family = "norm_modulation"
    if names and names[0].startswith("--family="):
        family = names.pop(0).removeprefix("--family=")
        round_to_bfloat16()
    cases = importlib.import_module(f"{family}_cases")
    kernels = importlib.import_module(f"kernwright.ops.{family}.triton_kernel")
    print(json.dumps({name: outcome(cases, kernels, name) for name in names}))


if __name__ == "__main__":
    main(sys.argv[1:])
