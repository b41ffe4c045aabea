"""Frozen rows, what they are held to, and what they are measured against."""
