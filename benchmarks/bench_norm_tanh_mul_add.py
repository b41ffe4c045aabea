"""Norm behind a tanh gate: sglang 0.5.12.post1 is the last that has it. See --help."""

from family import benchmark

if __name__ == "__main__":
    benchmark("norm_tanh_mul_add", "compile", "sglang@0.5.12.post1")
