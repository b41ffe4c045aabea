"""Kernels that campaigns promoted: the calls that they are proven for, and how they are built and run."""
