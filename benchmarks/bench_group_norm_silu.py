"""Group norm followed by SiLU, in video autoencoders. See --help."""

from family import benchmark

if __name__ == "__main__":
    benchmark("group_norm_silu", "compile", "sglang@0.5.23")
