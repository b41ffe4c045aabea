"""Residual sum, then norm, in place too: eager, torch.compile and sglang. See --help."""

from family import benchmark

if __name__ == "__main__":
    benchmark("add_norm", "compile", "sglang@0.5.23")
