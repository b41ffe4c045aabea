"""Traces of torch.profiler: kernels, copies and fills, each with the host code that launched it."""
