"""bench_norm_infer.py under the usual name of its kernel. See --help."""

from family import benchmark

if __name__ == "__main__":
    benchmark("norm_infer", "compile", "liger@0.8.5", "sglang@0.5.23")
