"""Scale and shift of tokens, and norms with a choice of two modulations. See --help."""

from family import benchmark

if __name__ == "__main__":
    benchmark("fuse_scale_shift", "compile", "sglang@0.5.23")
