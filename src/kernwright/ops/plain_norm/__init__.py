"""The norms alone: over a token, over a head."""
