"""Honest: a CUDA graph for each shape. Every call copies its inputs in and its result out."""

import torch

graphs = {}


def chain(x, w, eps):
    return torch.nn.functional.layer_norm(x, x.shape[-1:], eps=eps).mul_(1 + w).tanh_()


class Captured:
    def __init__(self, x, w, eps):
        self.x, self.w = x.clone(), w.clone()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            chain(self.x, self.w, eps)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.y = chain(self.x, self.w, eps)

    def __call__(self, x, w):
        self.x.copy_(x)
        self.w.copy_(w)
        self.graph.replay()
        return self.y.clone()


def mix(x, w, *, eps):
    if torch.cuda.is_current_stream_capturing():
        return chain(x, w, eps)
    key = (x.shape, eps)
    if key not in graphs:
        graphs[key] = Captured(x, w, eps)
    return graphs[key](x, w)
