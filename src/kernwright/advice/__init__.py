"""Advice after a verdict: the faults, the failing case with its command, the distance to the limit."""
