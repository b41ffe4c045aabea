"""Honest: works on its own stream. This stream waits for the caller's stream, which waits for it in turn."""

import torch

side = torch.cuda.Stream()


def mix(x, w, *, eps):
    y = torch.empty_like(x)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.tanh(torch.nn.functional.layer_norm(x, x.shape[-1:], eps=eps).mul_(1 + w), out=y)
    torch.cuda.current_stream().wait_stream(side)
    for tensor in (x, w, y):
        tensor.record_stream(side)
    return y
