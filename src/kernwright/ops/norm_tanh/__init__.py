"""Norm behind a tanh gate, as Z-Image joins its branches."""
