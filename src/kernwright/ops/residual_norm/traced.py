"""The family as torch.library ops, as `runtime/traced.py` makes them."""

from __future__ import annotations

from kernwright.ops.residual_norm.implementations import DISPATCHERS, PROMISES
from kernwright.runtime.traced import traced

OPS = {name: traced(dispatcher, PROMISES[name]) for name, dispatcher in DISPATCHERS.items()}
