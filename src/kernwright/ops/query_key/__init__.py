"""Norms of queries and keys with the rotation that follows them."""
