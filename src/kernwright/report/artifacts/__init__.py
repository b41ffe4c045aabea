"""Artifacts of a campaign: one folder with the tables and texts that a pull request needs."""
