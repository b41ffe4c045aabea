"""Drafts of tasks from captured calls, and the check that the rows of a task reject every mutant."""
