"""The loop of a campaign: one idea after the other, each edited, judged, recorded and committed; and its stop rules."""
