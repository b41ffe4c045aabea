"""Agents: the programs and persons that edit a candidate in an iteration of a campaign, and their restrictions."""
