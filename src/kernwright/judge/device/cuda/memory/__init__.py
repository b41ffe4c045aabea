"""GPU memory that the judge lends to workers, and the kernels and copies that secure and compare outputs."""
