"""The annotated trace: a recorded trace with steps, categories, hotspots, chains and gaps as tracks, for Perfetto."""
