"""The catalogue of fast paths: kernels that are known to do the work of slower ones, as data."""
