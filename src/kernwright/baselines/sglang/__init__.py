"""sglang: adapters of its diffusion kernels, and stand-ins that let them be imported without the rest of sglang."""
