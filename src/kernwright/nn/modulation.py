"""Modulation and gates as modules: they have no parameters and add nothing to the state dict."""

from __future__ import annotations

from numbers import Real

from torch import Tensor, is_grad_enabled, nn

from kernwright import ops
from kernwright.nn.gradients import warn_of_gradients
from kernwright.runtime.call import BadArgument

NAMES = {"x": "a", "scale": "b", "shift": "c", "scale_constant": "k"}


class MulAdd(nn.Module):
    """Compute `a * (k + b) + c` in one kernel. The module has no parameters."""

    def forward(self, a: Tensor, b: Tensor, c: Tensor, k: float = 0) -> Tensor:
        """Return `a * (k + b) + c` in the dtype of a.

        With `k=0`, b is a gate and c a residual; with `k=1`, b is a scale and c a shift. b and c have the layouts of
        scale and shift in `kernwright.ops.scale_shift`.
        """
        if is_grad_enabled():
            warn_of_gradients("MulAdd", a, b, c)
        try:
            return ops.scale_shift(a, b, c, scale_constant=float(k) if isinstance(k, Real) else k)
        except BadArgument as wrong:
            raise wrong.renamed(NAMES) from None
