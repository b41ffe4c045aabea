"""Records: verdicts, their provenance, and the statistics and decisions that turn samples into verdicts."""
