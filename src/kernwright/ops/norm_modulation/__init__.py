"""Norm, then modulation: the adaptive layer norm at both ends of a diffusion transformer's block."""
