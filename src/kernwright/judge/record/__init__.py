"""Records: verdicts, their provenance, and the statistics and decisions that lead from samples to a verdict."""
