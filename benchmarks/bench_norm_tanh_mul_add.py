"""Norm behind a tanh gate: one kernel in sglang 0.5.12.post1, two in 0.5.23 where a second norm follows. See --help."""

from family import benchmark

if __name__ == "__main__":
    benchmark("norm_tanh_mul_add", "compile", "sglang@0.5.23", "sglang@0.5.12.post1")
