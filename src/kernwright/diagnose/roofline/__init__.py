"""Limits of a GPU: the table of GPUs, occupancy, and the roofline."""
