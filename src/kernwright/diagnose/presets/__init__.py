"""Presets: the workloads of model benchmarks, as data files, for sglang and for diffusers."""
