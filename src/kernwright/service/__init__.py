"""A server that keeps the judge warm for quick judgements, and its client. The client imports no torch."""
