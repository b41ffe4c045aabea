"""Cached frames, new frames and a border of zeros around them. See --help."""

from family import benchmark

if __name__ == "__main__":
    benchmark("causal_conv3d_cat_pad", "compile", "sglang@0.5.23")
