"""Adapters of sglang's diffusion kernels, and stand-ins with which they are imported without the rest of sglang."""
