"""The start of a campaign: the checks of the repository, the worktree, and the first commit."""
