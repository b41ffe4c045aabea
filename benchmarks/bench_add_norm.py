"""Residual sum and norm, also in place: eager, torch.compile, Liger-Kernel and sglang. See --help."""

from family import benchmark

if __name__ == "__main__":
    benchmark("add_norm", "compile", "liger@0.8.5", "sglang@0.5.23")
