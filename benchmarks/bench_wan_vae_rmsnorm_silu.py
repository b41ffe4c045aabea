"""RMS norm over channels and SiLU, in the Wan autoencoder. See --help."""

from family import benchmark

if __name__ == "__main__":
    benchmark("wan_vae_rmsnorm_silu", "compile", "sglang@0.5.23")
