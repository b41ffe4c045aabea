"""Hotspots: where a trace's GPU time goes, which known fast path covers it, and what that would save."""
