"""The page of a trace: the time of a step, the fast paths that would remove it, and their confidence."""
