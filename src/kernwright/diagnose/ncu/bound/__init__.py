"""Bounds of a kernel: the rules that find them, and the counters that the rules use."""
