"""Run with TRITON_INTERPRET=1, which holds for a whole process: every case's outcome, as JSON."""

from __future__ import annotations

import json
import sys

from plain_norm_cases import CASES, verify

from kernwright.ops.plain_norm import triton_kernel


def outcome(name: str) -> str | None:
    try:
        verify(CASES[name], getattr(triton_kernel, CASES[name].op))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


if __name__ == "__main__":
    print(json.dumps({name: outcome(name) for name in sys.argv[1:]}))
