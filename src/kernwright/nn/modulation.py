"""Modulation and gates as modules: nothing to learn, and nothing in the state dict."""

from __future__ import annotations

from numbers import Real

from torch import Tensor, nn

from kernwright import ops
from kernwright.runtime.call import BadArgument

NAMES = {"x": "a", "scale": "b", "shift": "c", "scale_constant": "k"}


class MulAdd(nn.Module):
    """a * (k + b) + c"""

    def forward(self, a: Tensor, b: Tensor, c: Tensor, k: float = 0) -> Tensor:
        """b and c lie over the tokens of a as scale and shift do in `ops.scale_shift`; with k 0 they are a gate and a
        residual, and the result has a's dtype."""
        try:
            return ops.scale_shift(a, b, c, scale_constant=float(k) if isinstance(k, Real) else k)
        except BadArgument as wrong:
            raise wrong.renamed(NAMES) from None
