"""The denoise benchmark: a diffusion pipeline of diffusers, timed stage by stage."""
