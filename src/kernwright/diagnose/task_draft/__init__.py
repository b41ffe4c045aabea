"""Drafts of tasks from hotspots: an op with the operators of a trace, and rows with its shapes."""
