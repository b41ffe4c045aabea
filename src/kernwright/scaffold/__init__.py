"""Templates of a new op family, and the code that adds it to a checkout completely or not at all."""
