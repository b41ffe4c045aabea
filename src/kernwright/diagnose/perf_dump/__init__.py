"""Perf dumps: the times of a run and its stages, with the keys that sglang writes."""
