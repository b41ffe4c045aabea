"""The warning of a module that records gradients: only the reference of an op has them, so that no kernel runs."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from kernwright.runtime.choice.fallback import warn_of_fallback
from kernwright.runtime.preference import preferred

_warned: set[str] = set()


def warn_of_gradients(module: str, *tensors: Any) -> None:
    """Warn once per module class if any of these inputs and weights requires a gradient.

    Modules call this only where gradients are recorded, so that inference pays for one look at the gradient mode.
    """
    if any(isinstance(own, Tensor) and own.requires_grad for own in tensors):
        _warn_once(module)


def _warn_once(module: str) -> bool:
    if module not in _warned and preferred() != "torch":
        _warned.add(module)
        warn_of_fallback(
            f"kernwright.nn.{module} runs its reference instead of a kernel, because a weight or an input requires a "
            "gradient. For inference, call the model under torch.no_grad() or torch.inference_mode(). "
            "This warning appears once per module class."
        )
    return True


# torch.compile calls this function while it traces, and does not trace it. This is what
# torch.compiler.assume_constant_result sets; calling that would import the compiler, which takes seconds.
_warn_once._dynamo_marked_constant = True  # type: ignore[attr-defined]
