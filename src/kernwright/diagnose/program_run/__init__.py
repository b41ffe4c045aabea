"""Runs of a user's program: its command, its environment, the native gate on its output, and its perf dump."""
