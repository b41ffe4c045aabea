"""Guard: the files that an agent must not change, compared before and after it ran, and restored."""
