"""Handles on worker processes: start, message exchange, timed blocks, stop, memory, log, children, end."""
