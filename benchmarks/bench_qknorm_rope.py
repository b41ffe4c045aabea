"""RMS norm of queries and keys per head, then rotation, in place. See --help."""

from family import benchmark

if __name__ == "__main__":
    benchmark("qknorm_rope", "compile", "sglang@0.5.23")
