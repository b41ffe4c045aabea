"""Norm with a tanh gate. With a second norm, sglang 0.5.12.post1 has one kernel and 0.5.23 has two. See --help."""

from family import benchmark

if __name__ == "__main__":
    benchmark("norm_tanh_mul_add", "compile", "sglang@0.5.23", "sglang@0.5.12.post1")
