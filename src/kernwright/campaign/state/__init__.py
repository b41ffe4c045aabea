"""The state of a campaign: its records as they grow, the versions of its candidate in git, and its best version."""
