"""Kernel names: short and distinct forms of C++ names and of generated names."""

from __future__ import annotations

import re
from functools import cache

LONGEST = 72
_UNNAMED = re.compile(r"\(anonymous namespace\)::|<unnamed>::|std::|c10::|at::native::|at::cuda::|__nv_")
_ARGUMENTS = re.compile(r"\((?!anonymous)[^()]*\)(\s*(const|\[clone[^]]*\]))*$")
_FUNCTOR = re.compile(
    r"(?P<name>\w+(?:Functor(?:OnSelf|OnOther)?(?:_\w+)?|Ops|KernelImpl|_kernel_cuda|_kernel_impl|_scalar_kernel|Kernel))"
    r"(?=[<(,> :]|$)"
)
# Kernels of ATen that say little without the functor that they run.
_GENERIC = re.compile(
    r"^(\w*elementwise_kernel\w*|reduce_kernel|index_elementwise_kernel|multi_tensor_apply_kernel|softmax_warp_forward)$"
)
_NOT_A_FUNCTOR = re.compile(r"^(gpu_kernel_impl\w*|BinaryFunctor|BUnaryFunctor|AUnaryFunctor|ReduceOps?)$")
_DTYPE = re.compile(r"\b(BFloat16|Half|bfloat16|half|float|double|Float8\w*)\b")


@cache
def short_name(kernel: str) -> str:
    """Return a kernel's name without namespaces, template arguments and parameters.

    For generic kernels of ATen, the name of the functor and its type are kept.
    """
    text = _UNNAMED.sub("", kernel.removeprefix("void ").strip())
    head = re.split(r"[<(]", text, maxsplit=1)[0].strip()
    base = head.rpartition("::")[2] or head or text
    if _GENERIC.match(base):
        found = [
            m["name"] for m in _FUNCTOR.finditer(text) if not _NOT_A_FUNCTOR.match(m["name"]) and m["name"] != base
        ]
        functor = found[-1] if found else ""
        dtype = _DTYPE.search(text, text.find(functor) if functor else 0)
        if functor:
            base = f"{base}<{functor}{', ' + dtype[0] if dtype else ''}>"
    elif "<" in text and (dtype := _DTYPE.search(text)):
        base = f"{base}<{dtype[0]}>"
    return base if len(base) <= LONGEST else base[: LONGEST - 3] + "..."
