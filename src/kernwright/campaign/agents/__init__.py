"""Agents: what edits a candidate in one iteration of a campaign, and what it may reach."""
