"""Perf dumps: how long a run and its stages took, in the keys that sglang writes, and the comparison of runs."""
