"""A family's cases in Triton's interpreter. Triton decides at its import whether it interprets, so all of them run in a
process of their own: this file, as a program, prints every case's outcome as JSON.

python interpreted_cases.py FAMILY CASE ...
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from kernwright.ops.definition import ops_in


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


def interpreted(family: str, names: Sequence[str]) -> dict[str, str | None]:
    """The outcomes of cases: none where all is well."""
    command = [sys.executable, __file__, family, *names]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def main(family: str, *names: str) -> None:
    defined = vars(importlib.import_module(f"kernwright.ops.{family}.definition"))
    if any(op.contract == "exact" for op in ops_in(defined).values()):  # held to bits, so to a GPU's rounding
        round_to_bfloat16()
    cases = importlib.import_module(f"{family}_cases")
    kernels = importlib.import_module(f"kernwright.ops.{family}.triton_kernel")
    print(json.dumps({name: outcome(cases, kernels, name) for name in names}))


if __name__ == "__main__":
    main(*sys.argv[1:])
