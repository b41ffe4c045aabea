"""Baselines: published packages pinned by wheel hash, and adapters that call their kernels like one of our ops."""
