"""Norm, scale and shift, also with a gated residual. See --help."""

from family import benchmark

if __name__ == "__main__":
    benchmark("norm_scale_shift", "compile", "sglang@0.5.23")
