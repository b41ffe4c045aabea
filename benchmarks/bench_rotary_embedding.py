"""Rotary embeddings: adjacent pairs, and the split halves of LTX-2. See --help."""

from family import benchmark

if __name__ == "__main__":
    benchmark("rotary_embedding", "compile", "sglang@0.5.23")
