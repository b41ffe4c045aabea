"""Compiler keys: hashes that compilers compute once per process, equal in all of them.

Triton and Inductor name what they have compiled by a hash over all of their own files, hundreds of megabytes. A zygote
that has worked it out hands it on to each worker that it forks.
"""

from __future__ import annotations

import importlib
import sys

# Each is remembered by the function itself. (Triton has moved its own; where none is found, workers work it out.)
KEYS = (
    ("triton", "triton.runtime.cache", "triton_key"),
    ("triton", "triton.compiler.compiler", "triton_key"),
    ("torch._inductor.codecache", "torch._inductor.codecache", "torch_key"),
)


def compute_compiler_keys() -> list[str]:
    """Asks those that are here for their keys. Nothing is imported for it that would not be there: a module may
    remember from its import where it was. Answers whom it asked."""
    asked = []
    for needed, module, name in KEYS:
        if needed in sys.modules and name not in asked:
            key = getattr(importlib.import_module(module), name, None)
            if callable(key):
                key()
                asked.append(name)
    return asked
