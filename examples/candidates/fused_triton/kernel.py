"""Norm, scale and shift in one pass: a program holds one token in registers.

Bytes a token: x read once, y written once; scale, shift and the affine stay in the cache. Rounds where the eager chain
rounds: after the norm, after the product and after the sum, each in the dtype that torch promotes to.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _fused(
    x, scale, shift, weight, bias, y, tokens, width,
    scale_batch, scale_token, shift_batch, shift_token, eps,
    RMS: tl.constexpr, WEIGHT: tl.constexpr, BIAS: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    batch, place = token // tokens, token % tokens
    column = tl.arange(0, BLOCK)
    inside = column < width
    own = tl.load(x + token * width + column, inside, 0.0)
    value = own.to(tl.float32)
    if RMS:
        normed = value * tl.rsqrt(tl.sum(value * value, 0) / width + eps)
    else:
        centred = tl.where(inside, value - tl.sum(value, 0) / width, 0.0)
        normed = centred * tl.rsqrt(tl.sum(centred * centred, 0) / width + eps)
    if WEIGHT:
        normed *= tl.load(weight + column, inside, 0.0).to(tl.float32)
    if BIAS:
        normed += tl.load(bias + column, inside, 0.0).to(tl.float32)
    normed = normed.to(own.dtype)
    by = tl.load(scale + batch * scale_batch + place * scale_token + column, inside, 0.0)
    to = tl.load(shift + batch * shift_batch + place * shift_token + column, inside, 0.0)
    if WIDE:
        result = normed.to(tl.float32) * (1.0 + by.to(tl.float32)) + to.to(tl.float32)
    else:  # 16-bit modulation: each step of the chain rounds
        factor = (1.0 + by.to(tl.float32)).to(own.dtype).to(tl.float32)
        product = (normed.to(tl.float32) * factor).to(own.dtype).to(tl.float32)
        result = product + to.to(tl.float32)
    tl.store(y + token * width + column, result.to(own.dtype), inside)


def _steps(modulation, tokens):
    """Strides over batches and tokens, whatever shape the modulation comes in."""
    if modulation.dim() == 1 or modulation.numel() == modulation.shape[-1]:
        return 0, 0
    if modulation.dim() == 2:
        return modulation.stride(0), 0
    by_token = modulation.stride(1) if modulation.shape[1] == tokens else 0
    return (modulation.stride(0) if modulation.shape[0] > 1 else 0), by_token


def norm_scale_shift(x, scale, shift, weight=None, bias=None, *, norm_type="layer", eps=1e-6):
    x = x.contiguous()
    y = torch.empty_like(x)
    width, tokens = x.shape[-1], x.shape[-2]
    block = triton.next_power_of_2(width)
    _fused[(x.numel() // width,)](
        x, scale, shift, weight, bias, y, tokens, width, *_steps(scale, tokens), *_steps(shift, tokens), eps,
        norm_type == "rms", weight is not None, bias is not None,
        scale.dtype == torch.float32 or x.dtype == torch.float32, block, num_warps=min(16, max(4, block // 512)),
    )  # fmt: skip
    return y
