"""Traces of torch.profiler: reading them, and which host code launched which kernel."""
