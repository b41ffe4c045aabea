"""Hotspots: the GPU work of a trace by time, with the known fast path that covers it and the saving."""
