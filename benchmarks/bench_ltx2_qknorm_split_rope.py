"""RMS norm over all heads and split rotation, of LTX-2. See --help."""

from family import benchmark

if __name__ == "__main__":
    benchmark("ltx2_qknorm_split_rope", "compile", "sglang@0.5.23")
