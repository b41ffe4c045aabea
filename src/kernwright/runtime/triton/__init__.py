"""Launch configurations of Triton kernels: the defaults, and the tables of measured ones."""
