"""Reviews of a campaign's best version: the checklist, what the tool can show of it, and findings that block."""
