"""How a task comes to be: drafts from captured calls, and the check that its rows reject every mutant."""
