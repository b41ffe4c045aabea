"""Honest: compiles its elementwise part with torch.compile, once for all sizes."""

import torch
import torch._inductor.config

# Without vectors and precompiled headers the build takes 5 seconds instead of 20.
torch._inductor.config.cpp.vec_isa_ok = False
torch._inductor.config.cpp_cache_precompile_headers = False


@torch.compile(dynamic=True)
def squash(centred, variance, w, eps):
    return torch.tanh(centred * torch.rsqrt(variance + eps) * (1 + w))


def mix(x, w, *, eps):
    centred = x - x.mean(-1, keepdim=True)
    return squash(centred, centred.pow(2).mean(-1, keepdim=True), w, eps)
