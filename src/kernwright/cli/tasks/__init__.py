"""Commands that make and show tasks, and record calls to make them of."""
