"""Promotion of a campaign's best version into `kernwright.ops`: what it requires, and the branch that it makes."""
