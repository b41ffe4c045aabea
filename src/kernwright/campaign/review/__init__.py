"""Reviews of a campaign's best version: the checklist with its facts, and findings, which block a promotion."""
