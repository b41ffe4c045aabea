"""Campaigns: sweeps over tasks and baselines, and the tuner of Triton kernels."""
