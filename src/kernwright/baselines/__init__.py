"""Baselines from published packages: pinned by wheel hash, fetched, and run in a baseline's worker through adapters."""
