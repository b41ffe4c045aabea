"""Compiler keys: hashes that compilers compute once per process, equal in all processes.

Triton and Inductor name compiled code by a hash over all of their files, hundreds of megabytes. Workers inherit the
hash from the zygote that has computed it.
"""

from __future__ import annotations

import importlib
import sys

# Each function caches its result. (Triton has moved its function; if none is found, workers compute the key.)
KEYS = (
    ("triton", "triton.runtime.cache", "triton_key"),
    ("triton", "triton.compiler.compiler", "triton_key"),
    ("torch._inductor.codecache", "torch._inductor.codecache", "torch_key"),
)


def compute_compiler_keys() -> list[str]:
    """Compute the keys of the compilers that are imported already. Return their names.

    Nothing else is imported: a module may read its environment at import.
    """
    asked = []
    for needed, module, name in KEYS:
        if needed in sys.modules and name not in asked:
            key = getattr(importlib.import_module(module), name, None)
            if callable(key):
                key()
                asked.append(name)
    return asked
