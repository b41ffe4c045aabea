"""A small model with an activation of its own. docs/own_op.md makes a task from it."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def gated_relu2(x: Tensor, gate: Tensor, scale: float = 1.0) -> Tensor:
    """Square the ReLU of x, and multiply by a gate and a scale."""
    return torch.relu(x).square() * gate * scale


class FeedForward(nn.Module):
    """A feed-forward block: two projections, the activation, and a projection back."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, inner, bias=False)
        self.gate = nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.down(gated_relu2(self.up(x), self.gate(x), scale=0.5))
        return x + hidden


def main() -> None:
    torch.manual_seed(0)
    block = FeedForward(width=192, inner=768)
    with torch.no_grad():
        for tokens in (77, 256):
            print(tokens, "tokens:", tuple(block(torch.randn(1, tokens, 192)).shape))


if __name__ == "__main__":
    main()
