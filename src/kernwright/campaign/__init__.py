"""Campaigns: an op made faster one idea after the other; sweeps over tasks and baselines."""
