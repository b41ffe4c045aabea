"""Gated residuals, and the broadcast sum of frame embeddings. See --help."""

from family import benchmark

if __name__ == "__main__":
    benchmark("residual_gate_add", "compile", "sglang@0.5.23")
