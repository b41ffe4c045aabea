"""The page of a trace: where the time of a step goes, what would remove it, and how certain that is."""
