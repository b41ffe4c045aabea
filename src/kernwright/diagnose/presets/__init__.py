"""Presets: what a benchmark of a model computes, as data files, for sglang and for diffusers."""
