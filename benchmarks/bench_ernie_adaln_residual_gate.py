"""RMS norm, modulation and gated residuals of ERNIE-Image. See --help."""

from family import benchmark

if __name__ == "__main__":
    benchmark("ernie_adaln_residual_gate", "compile", "sglang@0.5.23")
